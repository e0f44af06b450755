"""Server-sent events over one response."""

from __future__ import annotations

import asyncio
import zlib

from aiohttp import web


class Sender:
    """Sends events to one page, compressed where the browser takes it.

    aiohttp's own compression keeps what it has been given until there is enough of it; an event has to go at once.

    Args:
        request: of the page.
        response: to it, prepared.
        patience: seconds that the page may take nothing; then the connection is cut, as it holds a place of its
            viewer's.
        compress: whether the response is gzip.
    """

    def __init__(self, request: web.Request, response: web.StreamResponse, patience: float, *, compress: bool) -> None:
        self.response = response
        self._request = request
        self._patience = patience
        self._deflate = zlib.compressobj(6, zlib.DEFLATED, 16 + zlib.MAX_WBITS) if compress else None

    @classmethod
    async def open(cls, request: web.Request, patience: float) -> Sender:
        """Answer a request with a stream of events."""
        compress = "gzip" in request.headers.get("Accept-Encoding", "")
        headers = {"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"}
        if compress:
            headers["Content-Encoding"] = "gzip"
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        return cls(request, response, patience, compress=compress)

    async def send(self, kind: str, data: bytes) -> None:
        """One event; JSON of msgspec's has no line ends.

        Raises:
            ConnectionError: the page was closed, or has taken nothing for too long.
        """
        await self._write(b"event: %b\ndata: %b\n\n" % (kind.encode(), data))

    async def beat(self) -> None:
        """A comment: proxies close what is silent.

        Raises:
            ConnectionError: as for ``send``.
        """
        await self._write(b": beat\n\n")

    async def _write(self, data: bytes) -> None:
        if self._deflate is not None:
            # Megabytes take a tenth of a second.
            data = await asyncio.to_thread(self._pack, data) if len(data) > 1 << 16 else self._pack(data)
        try:
            async with asyncio.timeout(self._patience):
                await self.response.write(data)
        except TimeoutError:
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ConnectionAbortedError("the page takes nothing") from None

    def _pack(self, data: bytes) -> bytes:
        assert self._deflate is not None
        return self._deflate.compress(data) + self._deflate.flush(zlib.Z_SYNC_FLUSH)

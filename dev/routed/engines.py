"""HTTP servers on loopback in place of engines, one for each pod, since kwok's pods run nothing.

A prefill answers with its image, which stands for the cache that it has computed; a decode that gets a cache which it
cannot read says 409.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any, Final

from aiohttp import web

#: Seconds that a request takes in each role, and how many an engine works on at a time.
WORK: Final = {"prefill": (0.15, 2), "decode": (0.35, 4)}
#: Images of prefill and decode that understand each other.
Fits = Collection[tuple[str, str]]


class Engine:
    """The server of one pod.

    Args:
        pod: as the API server has it.
        fits: the combinations of images that were in force at some time.
    """

    def __init__(self, pod: dict[str, Any], fits: Fits) -> None:
        self.role: str = pod["metadata"]["labels"]["covey.dev/role"]
        self.image: str = pod["spec"]["containers"][0]["image"]
        self.url = ""
        self._fits = fits
        self._seconds, slots = WORK[self.role]
        self._slots = asyncio.Semaphore(slots)
        application = web.Application()
        application.router.add_post("/", self._answer)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0)

    async def start(self) -> None:
        """Listen on a free port."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}/"

    async def stop(self) -> None:
        """End as a killed process does: what is under way is lost."""
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        asked = await request.json()
        if self.role == "decode" and (asked["cache"], self.image) not in self._fits:
            return web.json_response({"error": f"{self.image} cannot read the cache of {asked['cache']}"}, status=409)
        async with self._slots:
            await asyncio.sleep(self._seconds)
        return web.json_response({"cache": self.image} if self.role == "prefill" else {"text": "…"})

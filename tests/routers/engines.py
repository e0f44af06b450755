"""Engines in front of real routers: an HTTP server at the address of each pod, which says what SGLang's and vLLM's say.

kwok gives pods addresses on loopback (``flags`` of the cluster), so a router that finds a pod by its labels reaches one of
these. A decode learns from a request which prefill has its cache, by the address that the router has put there, and
notes the images of both.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from aiohttp import web

from builders.manifests import Object
from localcluster import Cluster, Recording
from localcluster.background import Background

MODEL: Final = "qwen"
#: Seconds that a request takes in each role.
WORK: Final = {"prefill": 0.05, "decode": 0.15}
_LOOK: Final = 0.02
_SILENT: Final = logging.getLogger(__name__)
_SILENT.disabled = True
#: What a request is sent to; all else that is posted is not known.
_ASKED: Final = frozenset({"/generate", "/v1/completions", "/v1/chat/completions"})


class Engines(Background):
    """The engines of a resource's leaders; a context manager.

    Args:
        cluster: where the pods are.
        pods: path of their list.
        port: at which all of them listen.
    """

    def __init__(self, cluster: Cluster, pods: str, port: int) -> None:
        super().__init__()
        #: Images of prefill and decode that understand each other; whoever writes a spec adds to it first.
        self.fits: set[tuple[str, str]] = set()
        #: Requests by the images of prefill and decode that had them.
        self.pairs = Counter[tuple[str, str]]()
        #: Decode that was sent to a prefill that is not there.
        self.orphans = 0
        #: What routers asked for beside requests.
        self.asked = Counter[str]()
        self.port = port
        self.error: BaseException | None = None
        self.by_address: dict[str, Engine] = {}
        self._cluster = cluster
        self._path = pods

    @property
    def mixed(self) -> int:
        """Requests whose decode could not read the cache of its prefill."""
        return sum(count for pair, count in self.pairs.items() if pair not in self.fits)

    def _run(self) -> None:
        try:
            with self._cluster.record(self._path) as recording:
                asyncio.run(self._follow(recording))
                recording.check()
        except BaseException as error:  # noqa: BLE001 - told by the test, which asks
            self.error = error

    async def _follow(self, recording: Recording) -> None:
        seen = 0
        while not self.ended.is_set():
            events = recording.events[seen:]
            seen += len(events)
            for change, pod in events:
                await self._take(change, pod)
            await asyncio.sleep(_LOOK)
        for engine in self.by_address.values():
            await engine.stop()

    async def _take(self, change: str, pod: Object) -> None:
        address = pod.get("status", {}).get("podIP")
        if not address or pod["metadata"]["labels"].get("covey.dev/index") != "0":
            return
        known = self.by_address.get(address)
        if change == "DELETED":
            if known is not None and known.uid == pod["metadata"]["uid"]:
                await self.by_address.pop(address).stop()
        elif known is None:
            engine = Engine(pod, self)
            await engine.start()
            self.by_address[address] = engine


class Engine:
    """The server of one pod."""

    def __init__(self, pod: Object, engines: Engines) -> None:
        self.uid: str = pod["metadata"]["uid"]
        self.image: str = pod["spec"]["containers"][0]["image"]
        self._role: str = pod["metadata"]["labels"]["covey.dev/role"]
        self._address: str = pod["status"]["podIP"]
        self._engines = engines
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self._answer)
        # Routers try gRPC first, which the server would log as faults.
        self._runner = web.AppRunner(application, access_log=None, logger=_SILENT, shutdown_timeout=0)

    async def start(self) -> None:
        """Listen where the pod's address says."""
        await self._runner.setup()
        await web.TCPSite(self._runner, self._address, self._engines.port, reuse_address=True).start()

    async def stop(self) -> None:
        """End as a killed process does: what is under way is lost."""
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        if request.path not in _ASKED:
            self._engines.asked[request.path] += 1
            return web.json_response(_describe(self._role))
        body = await request.json()
        if self._role == "decode":
            return await self._decode(body)
        await asyncio.sleep(WORK["prefill"])
        return web.json_response(_complete("") | {"kv_transfer_params": self._describe_cache()})

    async def _decode(self, body: Mapping[str, Any]) -> web.Response:
        prefill = self._engines.by_address.get(_prefill_of(body))
        if prefill is None:
            self._engines.orphans += 1
            return web.json_response({"error": "no prefill has this cache"}, status=500)
        pair = (prefill.image, self.image)
        self._engines.pairs[pair] += 1
        if pair not in self._engines.fits:
            return web.json_response({"error": f"{self.image} cannot read the cache of {prefill.image}"}, status=422)
        await asyncio.sleep(WORK["decode"])
        return web.json_response(_complete(" ".join(pair)))

    def _describe_cache(self) -> Object:
        """Where decode fetches it, as vLLM's NIXL connector says it."""
        return {
            "do_remote_prefill": True,
            "do_remote_decode": False,
            "remote_engine_id": self.uid,
            "remote_host": self._address,
            "remote_port": 5600,
            "remote_block_ids": [1],
        }


def _prefill_of(body: Mapping[str, Any]) -> str:
    """The address of the prefill that a decode is sent to, as SGLang or vLLM is told it."""
    host = body.get("bootstrap_host") or (body.get("kv_transfer_params") or {}).get("remote_host") or ""
    return str(host[0] if isinstance(host, list) else host)


def _complete(text: str) -> Object:
    choice = {"index": 0, "text": text, "finish_reason": "stop"}
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    return {
        "id": "1",
        "object": "text_completion",
        "created": 0,
        "model": MODEL,
        "choices": [choice],
        "usage": usage,
        "text": text,
        "meta_info": {"id": "1", "finish_reason": {"type": "stop"}, **usage},
    }


def _describe(role: str) -> Object:
    """Describe an engine: one answer to all that routers ask, of which each reads the fields that it knows."""
    return {
        "status": "ok",
        "object": "list",
        "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "sglang", "root": MODEL}],
        "model_path": f"/models/{MODEL}",
        "served_model_name": MODEL,
        "tokenizer_path": f"/models/{MODEL}",
        "is_generation": True,
        "tp_size": 1,
        "dp_size": 1,
        "disaggregation_mode": role,
        "version": "0.5.5",
    }

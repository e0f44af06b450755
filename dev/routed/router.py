"""A router that keeps each request to one value of ``covey.dev/pairing``, as llm-d's screener does.

It follows the pods. Endpoints are Ready, and have ``covey.dev/endpoint``; of the pairings with one in each role a
request gets one, by their shares of prefill. A pod that drains gets nothing new; once nothing that this router sent to
it is under way, the router says so on the pod (``covey.dev/in-flight``), and Covey deletes it.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from aiohttp import ClientError, ClientSession, web

from routed.engines import Engine, Fits

Object = dict[str, Any]
ROLES: Final = ("prefill", "decode")
#: Where the router says which images have answered.
HEADER: Final = "x-images"


class Router:
    """Engines of pods, and the way of each request to two of them.

    Args:
        fits: the combinations of images that were in force at some time.
        say_idle: is called with a pod that drains and has nothing under way; may block.
    """

    def __init__(self, fits: Fits, say_idle: Callable[[Object], object]) -> None:
        self._fits = fits
        self._say_idle = say_idle
        self._pods: dict[str, Object] = {}
        self._engines: dict[str, Engine] = {}
        self._under_way = Counter[str]()
        self._idle: set[str] = set()
        self._random = random.Random(1)
        self._tasks: set[asyncio.Task[object]] = set()
        #: Requests that would have been mixed had each role been chosen by itself.
        self.blind = 0

    async def take(self, change: str, pod: Object) -> None:
        """Take an event of a pod."""
        uid = pod["metadata"]["uid"]
        if change == "DELETED":
            self._pods.pop(uid, None)
            if (engine := self._engines.pop(uid, None)) is not None:
                await engine.stop()
            return
        self._pods[uid] = pod
        if uid not in self._engines and pod["spec"].get("nodeName"):
            engine = Engine(pod, self._fits)
            await engine.start()
            self._engines[uid] = engine
        self._look(uid)

    async def stop(self) -> None:
        """End all engines."""
        for engine in self._engines.values():
            await engine.stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def answer(self, request: web.Request) -> web.Response:
        """Send a request to prefill, and then to decode with the cache."""
        pair = self._choose()
        if pair is None:
            return web.json_response({"error": "no whole pairing"}, status=503)
        self._under_way.update(pair)
        prefill, decode = (self._engines[uid] for uid in pair)
        headers = {HEADER: f"{prefill.image} {decode.image}"}
        try:
            session: ClientSession = request.app[SESSION]
            async with session.post(prefill.url, json={}) as answer:
                cache = await answer.json()
            async with session.post(decode.url, json=cache) as answer:
                return web.json_response(await answer.json(), status=answer.status, headers=headers)
        except ClientError as error:
            return web.json_response({"error": str(error)}, status=502, headers=headers)
        finally:
            self._under_way.subtract(pair)
            for uid in pair:
                self._look(uid)

    def _choose(self) -> tuple[str, str] | None:
        found: dict[str, dict[str, list[str]]] = {}
        for uid, engine in self._engines.items():
            if _is_endpoint(pod := self._pods[uid]):
                pairing = pod["metadata"]["labels"].get("covey.dev/pairing", "")
                found.setdefault(pairing, {}).setdefault(engine.role, []).append(uid)
        whole = [roles for pairing, roles in found.items() if pairing and roles.keys() == set(ROLES)]
        if not whole:
            return None
        blind = [[uid for roles in found.values() for uid in roles.get(role, ())] for role in ROLES]
        images = tuple(self._engines[self._random.choice(uids)].image for uids in blind)
        self.blind += images not in self._fits
        [roles] = self._random.choices(whole, [len(roles["prefill"]) for roles in whole])
        prefill, decode = (min(roles[role], key=lambda uid: self._under_way[uid]) for role in ROLES)
        return prefill, decode

    def _look(self, uid: str) -> None:
        """Say that nothing is under way, where this is waited for."""
        pod = self._pods.get(uid)
        if pod is None or uid in self._idle or self._under_way[uid]:
            return
        if "covey.dev/draining" in pod["metadata"]["labels"]:
            self._idle.add(uid)
            task = asyncio.create_task(asyncio.to_thread(self._say_idle, pod))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


SESSION: Final = web.AppKey("session", ClientSession)


def _is_endpoint(pod: Object) -> bool:
    ready = any(
        each["type"] == "Ready" and each["status"] == "True" for each in pod.get("status", {}).get("conditions") or ()
    )
    labels = pod["metadata"]["labels"]
    return ready and labels.get("covey.dev/endpoint") == "true" and not pod["metadata"].get("deletionTimestamp")

"""A gateway before several routers, one for each pairing: it takes the newest that its readiness probe finds ready."""

from __future__ import annotations

from typing import Final

from localcluster import eventually
from localcluster.background import Background
from localcluster.probe import answers
from localcluster.process import Process
from routers.rollouts import Rollouts

_INTERVAL: Final = 0.1


class Gateway(Background):
    """Probes its routers; a context manager."""

    def __init__(self, rollouts: Rollouts) -> None:
        super().__init__()
        self._rollouts = rollouts
        self._routers: list[Process] = []
        self._ready: list[Process] = []

    def add(self, pairing: str) -> None:
        """Start the router of a pairing, and wait until it has engines."""
        more, name = f"covey.dev/pairing={pairing}", f"router-{pairing}"
        router = self._rollouts.example.start(self._rollouts.serving, more, name=name)
        self._routers.append(router)
        eventually(lambda: router in self._ready, 60, f"the router of {pairing} has engines")

    def choose(self) -> str:
        """The address of the newest router that is ready."""
        return self._ready[-1].url

    def _run(self) -> None:
        while not self.ended.wait(_INTERVAL):
            ready = [router for router in self._routers if answers(router.health_url)]
            # Where no probe is answered in time, requests go where they went: what is lost then is counted.
            self._ready = ready or self._ready

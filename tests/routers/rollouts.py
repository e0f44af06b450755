"""A resource of an example with engines that answer, through rollouts, and requests to its routers meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from cluster.serving import Serving, serves
from cluster.workbench import label
from localcluster import eventually
from localcluster.probe import answers
from localcluster.process import Process
from routers.engines import Engines
from routers.programs import Example
from routers.traffic import Traffic


def image_of(tag: str) -> str:
    return f"registry.test/engine:{tag}"


@dataclass
class Rollouts:
    """One resource."""

    serving: Serving
    example: Example
    engines: Engines
    #: Fields of the spec beside those of the example.
    spec: dict[str, Any]

    def change(self, prefill: str, decode: str) -> None:
        """Roll images out, and wait until nothing else is there and all of it is Ready."""
        self._apply(prefill, decode)
        wanted = {"prefill": image_of(prefill), "decode": image_of(decode)}

        def rolled() -> bool:
            pods = self.serving.pods()
            assert len(pods) == self.example.size()
            images = {(label(pod, "role"), pod["spec"]["containers"][0]["image"]) for pod in pods}
            return images == set(wanted.items())

        eventually(rolled, 240, f"prefill {prefill}, decode {decode} alone are there")
        self.serving.await_ready(self.example.size())

    def begin(self, prefill: str, decode: str) -> str:
        """Roll one replica of each role that changes, and return its pairing once that is whole."""
        [former] = self.pairings()
        self._apply(prefill, decode, partition=1)

        def whole() -> str:
            [new] = self.pairings() - {former} or {""}
            roles = {label(pod, "role") for pod in self.serving.pods(pairing=new) if serves(pod)}
            return new if roles == {"prefill", "decode"} else ""

        return eventually(whole, 240, "a pair of the new revision is there")

    def pairings(self) -> set[str]:
        """Values of the label over all pods."""
        return {label(pod, "pairing") for pod in self.serving.pods()}

    def await_answers(self, traffic: Traffic, pair: tuple[str, str]) -> None:
        """Wait until requests are answered by these, and only these, for a while."""
        images = (image_of(pair[0]), image_of(pair[1]))

        def reached() -> bool:
            before = (traffic.statuses[200], self.engines.pairs[images])
            eventually(lambda: traffic.statuses[200] >= before[0] + 20, 60, "requests are answered")
            return self.engines.pairs[images] >= before[1] + 15

        eventually(reached, 120, f"requests go to {pair}")

    def _apply(self, prefill: str, decode: str, *, partition: int = 0) -> None:
        self.engines.fits.add((image_of(prefill), image_of(decode)))
        found = self.example.resource(image_of(prefill), image_of(decode), **self.spec)
        found["metadata"]["namespace"] = self.serving.namespace
        for role in found["spec"]["roles"]:
            role["update"] = {"partition": partition}
        self.serving.cluster.apply(found)


@contextmanager
def serve(serving: Serving, example: Example, **spec: Any) -> Iterator[Rollouts]:
    """The resource with engines of image 1 that answer."""
    with Engines(serving.cluster, serving.path("Pod"), example.port) as engines:
        found = Rollouts(serving, example, engines, spec)
        found.change("1", "1")
        yield found
    assert engines.error is None


def is_ready(router: Process) -> Callable[[], bool]:
    """Whether the probe of the example finds a router ready."""
    return lambda: answers(router.health_url)

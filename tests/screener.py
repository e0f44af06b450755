"""A router that pairs by one label: the rules of llm-d-router's ``disaggregatedset-rollout-screener``, with Covey's keys.

Written anew from its README (llm-d-router 0.10). It counts the Ready pods in its scope by the revision label and the role
label; a revision without a Ready pod of some required role gets no request; of the others one is chosen for a request,
and only endpoints of it remain for all profiles. Where none is left the answer is 503. A pod without the revision label
is never an endpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

Object = Mapping[str, Any]
#: The scope, and the selector of the pool, as ``examples/router.yaml`` has them.
SCOPE: dict[str, str] = {"covey.dev/endpoint": "true", "covey.dev/index": "0"}
REVISION = "covey.dev/pairing"
ROLE = "covey.dev/role"
#: Images of the engines that one request passes, in the order of the roles.
Route = tuple[str, ...]


@dataclass(frozen=True)
class Endpoint:
    """A Ready pod in the scope: its labels that count, and the image that it really runs."""

    revision: str
    role: str
    image: str

    @classmethod
    def of(cls, pod: Object) -> Endpoint | None:
        """None for a pod that is no endpoint: out of the scope, on its way out, or not Ready."""
        labels = pod["metadata"].get("labels") or {}
        ready = any(
            each["type"] == "Ready" and each["status"] == "True"
            for each in pod.get("status", {}).get("conditions") or ()
        )
        if not (labels.items() >= SCOPE.items() and ready) or pod["metadata"].get("deletionTimestamp"):
            return None
        # While images are changed in place, the kubelet's word counts.
        told = pod.get("status", {}).get("containerStatuses") or pod["spec"]["containers"]
        return cls(labels.get(REVISION, ""), labels.get(ROLE, ""), told[0]["image"])


def find_routes(pods: Iterable[Object], roles: Collection[str] = ("prefill", "decode")) -> set[Route]:
    """Every way that a request could go now; none at all means 503."""
    found: dict[str, dict[str, set[str]]] = {}
    for pod in pods:
        endpoint = Endpoint.of(pod)
        if endpoint is not None and endpoint.revision and endpoint.role in roles:
            found.setdefault(endpoint.revision, {}).setdefault(endpoint.role, set()).add(endpoint.image)
    covered = [by_role for by_role in found.values() if by_role.keys() == set(roles)]
    return {route for by_role in covered for route in product(*(by_role[role] for role in roles))}


def find_blind_routes(pods: Iterable[Object], roles: Collection[str] = ("prefill", "decode")) -> set[Route]:
    """Every way that a request could go with a router that knows no pairing, and takes any Ready pod of each role."""
    found: dict[str, set[str]] = {role: set() for role in roles}
    for pod in pods:
        endpoint = Endpoint.of(pod)
        if endpoint is not None and endpoint.role in found:
            found[endpoint.role].add(endpoint.image)
    return set(product(*(found[role] for role in roles)))


def could_serve(
    pods: Iterable[Object], allowed: Iterable[Route], roles: Collection[str] = ("prefill", "decode")
) -> bool:
    """Tell whether engines of one allowed combination are Ready in every role, whatever their labels say."""
    there = {(found.role, found.image) for pod in pods if (found := Endpoint.of(pod)) is not None}
    return any(set(zip(roles, route, strict=True)) <= there for route in allowed)


class Judge:
    """The screener in front of pods that change: every event is judged.

    Args:
        before: the pods when it begins.
        allowed: combinations of images that were in force at some time.
        routes: the rules of the router.
    """

    def __init__(
        self,
        before: Iterable[Object],
        allowed: Collection[Route],
        routes: Callable[[Iterable[Object]], set[Route]] = find_routes,
    ) -> None:
        self._find_routes = routes
        self._pods = {pod["metadata"]["uid"]: pod for pod in before}
        self._allowed = set(allowed)
        #: Every route that a request could have gone, and how many events left none although engines could serve.
        self.routes: set[Route] = set()
        self.refused: list[str] = []

    def see(self, events: Iterable[tuple[str, Object]]) -> None:
        """Judge events in their order."""
        for kind, pod in events:
            self._pods.pop(pod["metadata"]["uid"], None)
            if kind != "DELETED":
                self._pods[pod["metadata"]["uid"]] = pod
            routes = self._find_routes(self._pods.values())
            mixed = routes - self._allowed
            assert not mixed, f"after {kind} {pod['metadata']['name']}: {mixed} could be paired"
            self.routes |= routes
            if not routes and could_serve(self._pods.values(), self._allowed):
                self.refused.append(f"{kind} {pod['metadata']['name']}")

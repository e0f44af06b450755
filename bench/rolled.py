"""Rollouts in figures: how many served all along, and how often a model had to be loaded one after the other."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from bench.stage import PODS, Bench, Json, role, serves
from soak.facts import Pod, Replica, by_replica, read_pod

#: Roles of 64 pods: replicas, size, minimum.
SHAPES: Final = {"prefill": (8, 4, 2), "decode": (32, 1, 8)}


def rollout(bench: Bench) -> None:
    """New images for all roles, with several budgets."""
    for budget in ({}, {"maxSurge": "25%"}, {"maxSurge": 0, "maxUnavailable": "25%"}):

        def roles(image: int, budget: Json = budget) -> list[Json]:
            return [
                role(name, count, image=image, size=size, minReplicas=least, **({"update": budget} if budget else {}))
                for name, (count, size, least) in SHAPES.items()
            ]

        bench.create("rolls", roles(1))
        total = sum(count for count, _, _ in SHAPES.values())
        bench.await_serving("rolls", total)
        with bench.cluster.record(f"{PODS}?labelSelector=covey.dev%2Finference%3Drolls") as recording:
            old = {pod["metadata"]["labels"]["covey.dev/revision"] for _, pod in recording.events}
            began = time.monotonic()
            bench.change("rolls", roles=roles(2))
            bench.await_serving("rolls", total, 1200)
            seconds = time.monotonic() - began
            found = {name: History(name, old).play(recording.events) for name in SHAPES}
        told = ", ".join(f"{key} {value}" for key, value in budget.items()) or "default budget"
        for name, (count, _, least) in SHAPES.items():
            history = found[name]
            bench.tell(
                f"rollout of 64 pods, {told}: {name} {count}, minimum {least}",
                f"serving >= {history.fewest} ({history.fewest / least:.2f} of the minimum, "
                f"{history.fewest / count:.2f} of wanted); {history.waves} waves, at least {bound(count, least, budget)}",
            )
        bench.tell(f"rollout of 64 pods, {told}", f"{seconds:.1f} s")
        bench.delete("rolls")


class History:
    """One role during a rollout."""

    def __init__(self, role: str, old: set[str]) -> None:
        self._role = role
        self._old = old
        self.fewest = 1 << 30
        self.waves = 0

    def play(self, events: Sequence[tuple[str, Json]]) -> History:
        """Take all events in their order."""
        pods: dict[str, Pod] = {}
        wave: dict[Replica, int] = {}
        for number, (kind, found) in enumerate(events):
            pod = read_pod(found)
            if pod.replica is None or pod.replica.side.role != self._role:
                continue
            pods.pop(pod.uid, None)
            if kind != "DELETED":
                pods[pod.uid] = pod
            there = by_replica(iter(pods.values()))
            if number + 1 < len(events) and number < self._first(events):
                continue
            serving = {replica for replica, members in there.items() if serves(members)}
            self.fewest = min(self.fewest, len(serving))
            if pod.labels["covey.dev/revision"] not in self._old and pod.replica not in wave:
                wave[pod.replica] = 1 + max((wave.get(each, 0) for each in serving), default=0)
        self.waves = max(wave.values(), default=0)
        return self

    def _first(self, events: Sequence[tuple[str, Json]]) -> int:
        """How many events say what was there at the beginning."""
        return sum(
            1
            for kind, pod in events
            if kind == "ADDED" and pod["metadata"]["labels"]["covey.dev/revision"] in self._old
        )


def bound(wanted: int, least: int, budget: Json) -> int:
    """The lower bound of waves of a role alone (derived in ``covey.rollout.model``)."""

    def share(value: Any, *, up: bool) -> int:
        if isinstance(value, int):
            return value
        part = int(value.removesuffix("%")) * wanted
        return -(-part // 100) if up else part // 100

    surge, missing = share(budget.get("maxSurge", 1), up=True), share(budget.get("maxUnavailable", 0), up=False)
    ceiling, floor = wanted + surge, max(wanted - (missing or (not surge)), least)
    ready = waves = 0
    while ready < wanted:
        keep = 0 if ready >= floor else max(1 if ceiling > 1 else 0, floor - ready)
        ready, waves = min(wanted, ceiling - keep), waves + 1
    return waves

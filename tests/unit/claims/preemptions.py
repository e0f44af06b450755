"""Preemptions as the API server has them, for a writer that may end before any of its writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import msgspec
from msgspec.structs import replace

from covey.api import core
from covey.kube.errors import AlreadyExists, NotFound

#: What becomes of a victim; what is not named is final.
_NEXT = {
    "Named": {"Named", "Draining", "Gone", "Refused", "Late", "Released"},
    "Draining": {"Draining", "Gone", "Refused", "Late", "Released", "Named"},
}


class Killed(Exception):  # noqa: N818 - no error: the end of a process
    """A process that ended before a write."""


class StoredPreemptions:
    """The client of a scheduler process, and what it has written; what no process may write fails at once."""

    def __init__(self, now: Callable[[], str]) -> None:
        self.items: dict[tuple[str, str], core.Preemption] = {}
        #: Writes that are left to the process; None: any number.
        self.left: int | None = None
        self.writes = 0
        self._now = now
        self._versions = count(1)

    def spend(self) -> None:
        """Take notice of a write that is about to be made."""
        if self.left == 0:
            raise Killed
        self.left = None if self.left is None else self.left - 1
        self.writes += 1

    def of(self, uid: str) -> list[core.Preemption]:
        """The Preemptions of a root."""
        return [each for each in self.items.values() if each.spec.beneficiary.uid == uid]

    async def create(self, _resource: object, body: Mapping[str, Any], **_options: object) -> core.Preemption:
        self.spend()
        version = str(next(self._versions))
        metadata = {**body["metadata"], "uid": f"uid-{version}", "resourceVersion": version}
        made = msgspec.convert({**body, "metadata": {**metadata, "creationTimestamp": self._now()}}, core.Preemption)
        if made.metadata.key in self.items:
            raise AlreadyExists(409, "AlreadyExists", "there is one")
        open_ones = [each for each in self.of(made.spec.beneficiary.uid) if not each.status.outcome]
        assert len(open_ones) <= 1, f"three are under way: {[each.metadata.name for each in (*open_ones, made)]}"
        self.items[made.metadata.key] = made
        return made

    async def apply(self, _resource: object, body: Mapping[str, Any], **_options: object) -> core.Preemption:
        self.spend()
        key = body["metadata"]["namespace"], body["metadata"]["name"]
        if key not in self.items:
            raise NotFound(404, "NotFound", "there is none")
        before, status = self.items[key], msgspec.convert(body["status"], core.PreemptionStatus)
        assert not before.status.outcome, f"it was over: {before.status}; now {status}"
        assert [state.uid for state in status.victims] == [victim.uid for victim in before.spec.victims]
        states = {state.uid: state.state for state in before.status.victims}
        for state in status.victims:
            known = states.get(state.uid, "Named")
            assert state.state in _NEXT.get(known, {known}), f"{state.uid} was {known}, and is {state.state}"
        version = str(next(self._versions))
        metadata = replace(before.metadata, resource_version=version)
        self.items[key] = after = replace(before, metadata=metadata, status=status)
        return after

    async def delete(self, _resource: object, name: str, namespace: str, **_options: object) -> None:
        self.spend()
        if self.items.pop((namespace, name), None) is None:
            raise NotFound(404, "NotFound", "there is none")

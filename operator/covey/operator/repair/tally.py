"""The failures of a resource in a pass: each counted once, by the logs and by what its pods carry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from covey.api import constants as names
from covey.api.annotations import Avoided, dump_avoided
from covey.api.roles import Role
from covey.backends import Identity
from covey.compile import Slot, Tree
from covey.compile.restarts import NO_PAST, Past, memory
from covey.compile.revision import RoleRevision
from covey.model import podstate
from covey.operator.model.actions import Annotate
from covey.operator.model.observed import Observed
from covey.operator.model.place import Place
from covey.operator.repair.avoided_nodes import WINDOW
from covey.operator.repair.failure_log import ANNOTATION, Failure, Log, dump_log, keepers, key_of, nodes_of, read_log
from covey.operator.repair.failures import Fault, age, creation_time, failing_since, pods_of, revision_of


class Tally:
    """The failures of one resource.

    Args:
        tree: what is wanted.
        observed: the snapshot, with the logs of earlier failures.
    """

    def __init__(self, tree: Tree, observed: Observed) -> None:
        self._observed = observed
        self._keepers = keepers(tree)
        there = {keeper: owned for keeper in set(self._keepers.values()) if (owned := observed.objects.get(keeper))}
        self._objects = there
        self._logs: dict[Identity, Log] = {keeper: read_log(owned) for keeper, owned in there.items()}
        #: Failures that are seen for the first time.
        self.new: list[Failure] = []
        #: What pods of units carry that were recreated as a whole.
        self.wholes: dict[int, Past] = {unit: past for log in self._logs.values() for unit, past in log.wholes.items()}

    @property
    def every(self) -> list[Failure]:
        """All failures that are known, the oldest first."""
        noted = [failure for log in self._logs.values() for failure in log.failures]
        return sorted([*noted, *self.new], key=lambda failure: failure.at)

    def count(
        self,
        places: Sequence[Place],
        revision: RoleRevision,
        role: Role,
        faults: Sequence[Fault],
        since: float | None,
        *,
        alone: bool,
    ) -> Past:
        """Count a failure that was not counted yet; return the past that the successors of the failed pods carry.

        Args:
            places: those of the replica, or of the one pod that is replaced ``alone``.
            revision: of the replica.
            role: its role.
            faults: the pods that have failed.
            since: time since which the replica counts as having been Ready; None before that.
            alone: the rest of the replica goes on.
        """
        lead = max((fault.pod for fault in faults), key=lambda pod: (podstate.restarts(pod), age(pod)))
        former = podstate.past(lead)
        noted = self._last(faults[0].slot, revision, alone=alone)
        forgiven = noted is not None and since is not None and since > noted.at
        known_fault = noted is not None and creation_time(lead) <= noted.at and noted.past.restarts > former.restarts
        if noted is not None and known_fault and not forgiven:
            return noted.past
        made = [podstate.past(place.now) for place in places if place.now is not None]
        latest = max(made, key=lambda past: past.restarts, default=NO_PAST)
        if latest.restarts > former.restarts:
            return latest
        known = failing_since(faults)
        at = max(self._observed.now, creation_time(lead)) if known is None else known
        lived = at - since if since is not None else 0.0
        forgotten = lived >= memory(role.backoff) or revision_of(lead) != revision.hash
        past = Past(former.restarts + 1, 1 if forgotten else former.failures + 1, float(int(at)), former.unit)
        if known is None:
            fault = next(fault for fault in faults if fault.pod is lead)
            nodes = nodes_of(fault.pod for fault in faults)
            slot = faults[0].slot
            self.new.append(
                Failure(slot.unit, key_of(slot, alone=alone), revision.hash, past, fault.why, nodes, fault.detail)
            )
        return past

    def pending(self, places: Sequence[Place], revision: RoleRevision, role: Role, *, alone: bool) -> Past:
        """The past noted for a failure of these places that perhaps no pod carries yet; ``NO_PAST`` without one."""
        noted = self._last(places[0].slot, revision, alone=alone)
        if noted is None or self._observed.now >= noted.at + memory(role.backoff):
            return NO_PAST
        pods = pods_of(places)
        tombstones = [place.tombstone for place in places if place.tombstone is not None]
        restarts = max((*map(podstate.restarts, pods), *(tombstone.restarts for tombstone in tombstones)), default=0)
        fresh = any(creation_time(pod) > noted.at for pod in pods) or any(tombstone.retired for tombstone in tombstones)
        return NO_PAST if fresh or restarts >= noted.past.restarts else noted.past

    def log_annotations(self, avoided: Sequence[Avoided], roles: Mapping[str, Role]) -> Iterator[Annotate]:
        """Annotations to write on the objects that keep logs."""
        text = dump_avoided(avoided)
        for identity, owned in self._objects.items():
            if owned.metadata.deletion_timestamp is not None:
                continue
            changes: dict[str, str | None] = {}
            log = self._logs[identity]
            kept = self._extend_log(identity, log, roles)
            if kept != log:
                changes[ANNOTATION] = dump_log(kept)
            if owned.metadata.annotation(names.ANNOTATION_AVOID) != text:
                changes[names.ANNOTATION_AVOID] = text
            if changes:
                yield Annotate(identity[0], owned.metadata.name, owned.metadata.uid, changes)

    def _extend_log(self, identity: Identity, log: Log, roles: Mapping[str, Role]) -> Log:
        new = [failure for failure in self.new if self._keepers.get(failure.unit) == identity]
        wholes = {unit: past for unit, past in self.wholes.items() if self._keepers.get(unit) == identity}
        if not new:
            return replace(log, wholes=wholes)
        longest = max((memory(role.backoff) for role in roles.values()), default=0.0)
        return replace(log.with_failures(new, self._observed.now - max(WINDOW, longest)), wholes=wholes)

    def _last(self, slot: Slot, revision: RoleRevision, *, alone: bool) -> Failure | None:
        """The failure of a replica, or of a pod of it, that was noted last, if it was of the same revision."""
        keeper = self._keepers.get(slot.unit)
        log = self._logs.get(keeper) if keeper is not None else None
        noted = log.last(slot.unit, key_of(slot, alone=alone)) if log is not None and log.failures else None
        return noted if noted is not None and noted.revision == revision.hash else None

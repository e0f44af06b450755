"""Claims on the room of resources, found by those that they name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import inf
from typing import Final

from covey.api.constants import FOR_OTHERS
from covey.backends import Owned
from covey.kube.resources import Resource
from covey.kube.watch import DELETED, EventType
from covey.operator.model.claimed import POD, RootClaim, read_claim
from covey.operator.observe.watched import Key, Watched

#: The index of roots by the resources whose replicas they claim.
_VICTIM: Final = "victim"


class RootClaims:
    """The claims of all roots that are watched.

    Args:
        roots: Covey's groups, in all namespaces that are watched.
        look_at: adds a resource to the work queue.
        priority_of: the priority of the pods of the resource that a claim benefits; None where nobody knows it.
        evict: has ordinary pods evicted that a root claims, by namespace and name of the root.
        max_drain: seconds for which what gives way to others may drain at the most.
    """

    def __init__(
        self,
        roots: Iterable[Watched[Owned]],
        look_at: Callable[[Key], None],
        priority_of: Callable[[RootClaim], int | None],
        evict: Callable[[Key], None],
        max_drain: float = inf,
    ) -> None:
        self._roots = tuple(roots)
        self._reflectors = [reflector for watched in self._roots for reflector in watched.reflectors]
        self._evict = evict
        self._max_drain = max_drain
        self._look_at = look_at
        self.priority_of = priority_of
        for reflector in self._reflectors:
            reflector.add_index(_VICTIM, _victims_of)
            reflector.subscribe(self._on_root)

    def of(self, key: Key) -> tuple[RootClaim, ...]:
        """The claims that name a resource, with those of it that each names."""
        return tuple(self._claims_on(key))

    def kinds_that_evict(self, key: Key) -> Iterator[Resource]:
        """The kinds of which a root of this namespace and name claims ordinary pods."""
        for watched in self._roots:
            root = watched.get(key)
            if root is not None and _claims_pods(root):
                yield watched.resource

    def _claims_on(self, key: Key) -> Iterator[RootClaim]:
        for reflector in self._reflectors:
            for root in reflector.by_index(_VICTIM, key):
                claim = read_claim(root)
                if claim is not None:
                    victims = tuple(victim for victim in claim.victims if (victim.namespace, victim.name) == key)
                    longest = self._max_drain if claim.purpose in FOR_OTHERS else inf
                    yield replace(claim, victims=victims, priority=self.priority_of(claim), max_drain=longest)

    def _on_root(self, kind: EventType, root: Owned, before: Owned | None) -> None:
        """Have everybody looked at whom a claim names, or has named: the root's own resource sees it change anyhow."""
        if kind != DELETED and _claims_pods(root):
            self._evict(root.metadata.key)
        now = set(_victims_of(root)) if kind != DELETED else set()
        # What a root that is gone has claimed is in its last version.
        last = set(_victims_of(root if before is None else before))
        same = before is not None and before.status.claim == root.status.claim
        for key in now ^ last if same else now | last:
            self._look_at(key)


def _claims_pods(root: Owned) -> bool:
    claim = read_claim(root)
    return claim is not None and any(victim.kind == POD for victim in claim.victims)


def _victims_of(root: Owned) -> tuple[Key, ...]:
    """Find the resources that give way: none before all ordinary pods have gone, for these may not be allowed to."""
    claim = read_claim(root) if not _claims_pods(root) else None
    return tuple({(victim.namespace, victim.name): None for victim in claim.victims}) if claim is not None else ()

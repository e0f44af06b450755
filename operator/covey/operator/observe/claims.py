"""Claims on the room of resources, found by those that they name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from covey.backends import Owned
from covey.kube.watch import DELETED, EventType
from covey.operator.model.claimed import RootClaim, read_claim
from covey.operator.observe.watched import Key, Watched

#: The index of roots by the resources whose replicas they claim.
_VICTIM: Final = "victim"


class Claims:
    """The claims of all roots that are watched.

    Args:
        roots: Covey's groups, in all namespaces that are watched.
        look_at: adds a resource to the work queue.
        priority_of: the priority of the pods of a resource; None where it has none.
    """

    def __init__(
        self,
        roots: Iterable[Watched[Owned]],
        look_at: Callable[[Key], None],
        priority_of: Callable[[Key], int | None],
    ) -> None:
        self._reflectors = [reflector for watched in roots for reflector in watched.reflectors]
        self._look_at = look_at
        self._priority_of = priority_of
        for reflector in self._reflectors:
            reflector.add_index(_VICTIM, _victims_of)
            reflector.subscribe(self._on_root)

    def of(self, key: Key) -> tuple[RootClaim, ...]:
        """The claims that name a resource, with those of it that each names."""
        return tuple(self._claims_on(key))

    def _claims_on(self, key: Key) -> Iterator[RootClaim]:
        for reflector in self._reflectors:
            for root in reflector.by_index(_VICTIM, key):
                claim = read_claim(root)
                if claim is not None:
                    victims = tuple(each for each in claim.victims if (each.namespace, each.name) == key)
                    yield replace(claim, victims=victims, priority=self._priority_of((claim.namespace, claim.name)))

    def _on_root(self, kind: EventType, root: Owned, before: Owned | None) -> None:
        """Have everybody looked at whom a claim names, or has named: the root's own resource sees it change anyhow."""
        now = set(_victims_of(root)) if kind != DELETED else set()
        # What a root that is gone has claimed is in its last version.
        last = set(_victims_of(root if before is None else before))
        same = before is not None and before.status.claim == root.status.claim
        for key in now ^ last if same else now | last:
            self._look_at(key)


def _victims_of(root: Owned) -> tuple[Key, ...]:
    claim = read_claim(root)
    return tuple({(each.namespace, each.name): None for each in claim.victims}) if claim is not None else ()

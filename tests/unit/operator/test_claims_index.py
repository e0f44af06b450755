"""Claims as the caches know them: by those that they name, with whoever has to be looked at when one changes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from covey.api import constants as names
from covey.backends import Owned
from covey.kube.resources import COMPOSITE_POD_GROUPS, POD_GROUPS
from covey.operator.model.claimed import RootClaim
from covey.operator.observe.watched import Key
from unit.operator.seen import Seen

VICTIM, OTHER, CHAT = ("ml", "llama"), ("ml", "batch"), ("prod", "chat")
ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


class Roots(Seen):
    """Caches that are shown roots."""

    def show(self, kind: str, root: Owned, resource: str = COMPOSITE_POD_GROUPS.type) -> None:
        self.watch(self.caches.objects[resource], root, kind)

    def claims(self, key: Key) -> tuple[RootClaim, ...]:
        return self.caches.claims.of(key)


def victim(key: Key, *pods: str) -> dict[str, Any]:
    told = {"kind": "Replica", "namespace": key[0], "name": key[1]}
    return {**told, "unit": 0, "role": "decode", "replica": 1, "pods": list(pods)}


def root(
    *victims: dict[str, Any],
    version: int = 1,
    spec: dict[str, Any] | None = None,
    label: str | None = "chat",
    **meta: Any,
) -> Owned:
    labels = {names.LABEL_INFERENCE: label} if label else {}
    metadata = {"name": "chat-0", "namespace": "prod", "uid": "root", "resourceVersion": str(version), "labels": labels}
    claim = {"path": [], "since": "2026-01-01T00:00:00Z", "purpose": "Preemption", "victims": list(victims)}
    body = {"metadata": {**metadata, **meta}, "spec": spec or {}, "status": {"claim": claim}}
    return msgspec.convert(body, Owned)


@pytest.mark.parametrize("resource", [COMPOSITE_POD_GROUPS.type, POD_GROUPS.type])
def test_each_resource_sees_what_is_named_of_it(resource: str) -> None:
    seen = Roots()
    seen.show(ADDED, root(victim(VICTIM, "a"), victim(OTHER, "b"), victim(VICTIM, "c")), resource)
    (found,) = seen.claims(VICTIM)
    assert (found.uid, found.namespace, found.name, found.purpose) == ("root", *CHAT, "Preemption")
    assert [each.pods for each in found.victims] == [("a",), ("c",)]
    assert [each.pods for claim in seen.claims(OTHER) for each in claim.victims] == [("b",)]
    assert not seen.claims(CHAT)


@pytest.mark.parametrize(
    "made",
    [
        root(victim(VICTIM, "a"), deletionTimestamp="2026-01-01T00:00:00Z"),
        root(victim(VICTIM, "a"), spec={"parentCompositePodGroupName": "chat-0"}),
        root(),
    ],
    ids=["deleted", "no root", "nobody named"],
)
def test_what_is_not_obeyed(made: Owned) -> None:
    seen = Roots()
    seen.show(ADDED, made)
    assert not seen.claims(VICTIM)


def test_both_sides_are_looked_at_when_a_claim_comes_changes_and_goes() -> None:
    seen = Roots()
    seen.show(ADDED, root(victim(VICTIM, "a")))
    assert set(seen.asked) == {VICTIM, CHAT}
    seen.show(MODIFIED, root(victim(OTHER, "b"), version=2))
    assert set(seen.asked) == {VICTIM, OTHER, CHAT}
    seen.show(MODIFIED, root(victim(OTHER, "b"), version=3))
    assert set(seen.asked) == {CHAT}, "nothing has changed for those that it names"
    seen.show(MODIFIED, root(victim(OTHER, "b"), version=4, deletionTimestamp="2026-01-01T00:00:00Z"))
    assert set(seen.asked) == {OTHER, CHAT}
    assert not seen.claims(OTHER)
    seen.show(DELETED, root(victim(OTHER, "b"), version=5))
    assert OTHER not in seen.asked, "it is known already"

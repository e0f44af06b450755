from collections.abc import Hashable, Iterable

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from builders import pods
from covey.api.core import Pod
from covey.kube.store import Change, Store


def pod(name: str, uid: str = "u", version: str = "1", node: str | None = None, **labels: str) -> Pod:
    return pods.pod(name, uid=uid, labels=labels, node=node, resourceVersion=version)


def said(changes: Iterable[Change[Pod]]) -> list[tuple[str, str, str | None]]:
    return [
        (kind, f"{new.metadata.uid}@{new.metadata.resource_version}", old.metadata.resource_version if old else None)
        for kind, new, old in changes
    ]


def test_another_uid_under_the_same_name_is_another_object() -> None:
    store: Store[Pod] = Store()
    list(store.update(pod("p", uid="a", version="1")))
    assert said(store.update(pod("p", uid="b", version="5"))) == [("DELETED", "a@1", "1"), ("ADDED", "b@5", None)]
    assert said(store.replace([pod("p", uid="c", version="7")])) == [("DELETED", "b@5", "5"), ("ADDED", "c@7", None)]


def test_a_new_list_deletes_first_and_passes_over_what_has_not_changed() -> None:
    store: Store[Pod] = Store()
    list(store.replace([pod("gone", "g"), pod("same", "s"), pod("changed", "c")]))
    same = store.items["ns", "same"]
    changes = store.replace([pod("new", "n"), pod("changed", "c", "2"), pod("same", "s")])
    assert said(changes) == [("DELETED", "g@1", "1"), ("ADDED", "n@1", None), ("MODIFIED", "c@2", "1")]
    assert store.items["ns", "same"] is same


def test_a_failing_index_function_leaves_the_object_out() -> None:
    def fails(item: Pod) -> Iterable[Hashable]:
        if item.metadata.resource_version == "2":
            raise LookupError
        return ["x", "x"]

    store: Store[Pod] = Store()
    store.add_index("x", fails)
    list(store.update(pod("p")))
    assert len(store.by_index("x", "x")) == 1
    assert said(store.update(pod("p", version="2"))) == [("MODIFIED", "u@2", "1")]
    assert store.by_index("x", "x") == ()


NAMES = st.sampled_from("abcd")
PODS = st.builds(
    lambda name, uid, version, node, label: pod(name, f"{name}{uid}", str(version), node, l=label),
    NAMES,
    st.integers(0, 1),
    st.integers(0, 3),
    st.sampled_from([None, "n1", "n2"]),
    st.sampled_from("xy"),
)


def keys(item: Pod) -> list[Hashable]:
    """None, one or two keys, all changing with the object."""
    return [key for key in (item.spec.node_name, item.metadata.label("l")) if key]


class StoreIsItsChanges(RuleBasedStateMachine):
    """Whoever follows the changes knows the same objects as the store, and indexes agree with a full scan."""

    def __init__(self) -> None:
        super().__init__()
        self.store: Store[Pod] = Store()
        self.store.add_index("keys", keys)
        self.follower: dict[tuple[str, str], Pod] = {}

    def follow(self, changes: Iterable[Change[Pod]]) -> None:
        for kind, new, old in changes:
            key = new.metadata.key
            assert self.follower.get(key) is old
            assert (kind == "ADDED") == (old is None)
            if kind == "DELETED":
                del self.follower[key]
            else:
                assert old is None or old.metadata.uid == new.metadata.uid
                self.follower[key] = new

    @rule(item=PODS)
    def put(self, item: Pod) -> None:
        self.follow(self.store.update(item))

    @rule(item=PODS)
    def drop(self, item: Pod) -> None:
        self.follow(self.store.drop(item))

    @rule(items=st.lists(PODS, unique_by=lambda item: item.metadata.name))
    def replace(self, items: list[Pod]) -> None:
        self.follow(self.store.replace(items))
        listed = {item.metadata.key: item.metadata for item in items}
        assert {key: item.metadata.resource_version for key, item in self.store.items.items()} == {
            key: metadata.resource_version for key, metadata in listed.items()
        }

    @invariant()
    def same_objects(self) -> None:
        assert self.follower == self.store.items

    @invariant()
    def index_is_a_scan(self) -> None:
        for key in ("n1", "n2", "x", "y"):
            scan = {id(item) for item in self.store.items.values() if key in keys(item)}
            assert {id(item) for item in self.store.by_index("keys", key)} == scan


TestStoreIsItsChanges = StoreIsItsChanges.TestCase


def test_an_index_made_late_knows_what_is_there() -> None:
    store: Store[Pod] = Store()
    list(store.update(pod("p", node="n1")))
    store.add_index("node", lambda item: [item.spec.node_name])
    assert [item.metadata.name for item in store.by_index("node", "n1")] == ["p"]
    assert store.by_index("node", "n2") == ()
    with pytest.raises(ValueError, match="node"):
        store.add_index("node", lambda _: [])

"""Nothing follows from an object before Kopf has told of it; from then on, everything that its reflector has."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.operator.model.objects import InferenceText
from unit.operator.seen import Seen

Key = tuple[str, str]
LLAMA = ("ml", "llama")


def thing(uid: str, version: int = 1, key: Key = LLAMA) -> InferenceText:
    metadata = {"name": key[1], "namespace": key[0], "uid": uid, "resourceVersion": str(version), "generation": version}
    return msgspec.json.decode(msgspec.json.encode({"metadata": metadata}), type=InferenceText)


class Apart(Seen):
    """Caches whose reflector and whose Kopf tell of DisaggregatedInferences each for itself."""

    def __init__(self) -> None:
        super().__init__()
        self.inferences = self.caches.inferences
        #: UIDs in the order in which they were announced, and whether they are there.
        self.announced: dict[str, bool] = {}
        self.inferences.subscribe(lambda kind, item, _: self.announced.update({item.metadata.uid: kind != "DELETED"}))

    def reflect(self, kind: str, item: InferenceText) -> None:
        self.watch(self.inferences, item, kind)

    def kopf(self, kind: str | None, uid: str) -> None:
        self.inferences.trigger({"type": kind, "object": {"metadata": {"uid": uid}}})

    def settle(self) -> None:
        for reflector in self.inferences.reflectors:
            reflector.settled.set()


@pytest.mark.parametrize("order", ["the reflector first", "Kopf first"])
def test_object_when_reflector_and_kopf_have_told_of_it_is_looked_at(order: str) -> None:
    seen = Apart()
    steps = [lambda: seen.reflect("ADDED", thing("a")), lambda: seen.kopf(None, "a")]
    first, second = steps if order == "the reflector first" else reversed(steps)
    first()
    assert (seen.asked, seen.inferences.get(LLAMA)) == ([], None)
    second()
    assert seen.asked == [LLAMA]
    seen.reflect("MODIFIED", thing("a", 2))
    assert seen.asked == [LLAMA], "Kopf need not tell of it again"
    seen.reflect("DELETED", thing("a", 3))
    assert (seen.asked, seen.inferences.get(LLAMA)) == ([LLAMA], None), "nor of its end"


def test_namesake_when_kopf_has_told_of_the_former_object_only_is_not_looked_at() -> None:
    seen = Apart()
    seen.reflect("ADDED", thing("a"))
    seen.kopf("ADDED", "a")
    seen.reflect("ADDED", thing("b", 5))
    seen.looks.clear()
    seen.reflect("MODIFIED", thing("b", 6))
    assert (seen.asked, seen.inferences.get(LLAMA)) == ([], None)
    seen.kopf("ADDED", "b")
    assert seen.asked == [LLAMA]


def test_kind_when_kopf_has_not_told_of_all_that_was_listed_is_not_synced() -> None:
    seen = Apart()
    for number in range(2):
        seen.reflect("ADDED", thing(f"uid-{number}", key=("ml", f"r-{number}")))
    seen.settle()
    seen.kopf(None, "uid-0")
    assert not seen.inferences.synced.is_set()
    seen.kopf(None, "uid-1")
    assert seen.inferences.synced.is_set()


async def test_kind_when_it_has_no_objects_is_synced_once_that_is_known() -> None:
    seen = Apart()
    seen.settle()
    await seen.inferences.settle()
    assert seen.inferences.synced.is_set()


STEP = st.tuples(st.sampled_from(["write", "write", "delete", "reflect", "kopf"]), st.sampled_from(["llama", "qwen"]))


@given(st.lists(STEP, max_size=60))
def test_objects_when_reflector_and_kopf_lag_behind_each_other_are_announced_as_they_are(
    steps: list[tuple[str, str]],
) -> None:
    seen, there, version = Apart(), dict[str, InferenceText](), 0
    reflected, kopf, told = list[tuple[str, InferenceText]](), list[tuple[str, str]](), set[str]()

    def take(who: str) -> None:
        if who == "reflect" and reflected:
            seen.reflect(*reflected.pop(0))
        elif who == "kopf" and kopf:
            kind, uid = kopf.pop(0)
            told.add(uid)
            seen.kopf(kind, uid)
        assert seen.announced.keys() <= told

    for step, name in steps:
        version += 1
        if step == "write":
            kind = "MODIFIED" if name in there else "ADDED"
            uid = there[name].metadata.uid if name in there else f"{name}-{version}"
            there[name] = thing(uid, version, ("ml", name))
        elif step == "delete" and name in there:
            kind = "DELETED"
            there[name] = thing(there[name].metadata.uid, version, ("ml", name))
        else:
            take(step)
            continue
        reflected.append((kind, there[name]))
        kopf.append((kind, there[name].metadata.uid))
        if kind == "DELETED":
            del there[name]
    while reflected or kopf:
        take("reflect")
        take("kopf")
    uids = {item.metadata.uid for item in there.values()}
    assert {uid for uid, is_there in seen.announced.items() if is_there} == uids
    assert not seen.inferences.untold


def test_spec_when_it_is_nested_too_deeply_is_refused_where_it_is_read() -> None:
    deep = '{"a":' * 950 + "1" + "}" * 950
    stored = msgspec.json.decode(f'{{"metadata":{{}},"spec":{deep},"status":{{"units":1}}}}', type=InferenceText)
    # Whoever reads it may stand deeper than who stored it.
    assert read_below(stored, 500) == (
        "spec: it is nested too deeply; at most some 900 levels can be read",
        {"units": 1},
    )


def read_below(stored: InferenceText, depth: int) -> tuple[str, dict[str, object]]:
    if depth:
        return read_below(stored, depth - 1)
    inference = stored.read()
    return inference.unreadable, inference.status


def test_spec_when_it_is_too_large_is_not_read() -> None:
    for character in ("x", "é"):
        spec = json.dumps({"zzz": character * 600_000}, ensure_ascii=False)
        text = msgspec.json.decode(f'{{"metadata":{{}},"spec":{spec}}}', type=InferenceText)
        assert text.read().unreadable == "spec: it has 600,011 characters as JSON; at most 524,288 are read"
        assert not text.read().spec

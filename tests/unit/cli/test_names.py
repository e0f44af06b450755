"""Names of racks and nodes: in natural order everywhere, and never two alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covey.picture.short_names import short_names
from covey.placement.model import natural

BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"


@pytest.mark.parametrize(
    "names",
    [
        ["a", "rack-1", "rack-9", "rack-10"],
        ["1", "2", "10", "a"],
        ["r1-n2", "r1-n10", "r2-n1", "r10-n1"],
        ["r", "r1", "r1a"],
        ["rack-02", "rack-2", "rack-3"],
        ["²", "³"],
        ["9" * 4999, "1" + "0" * 4999],
    ],
)
def test_names_are_ordered_as_people_do(names: list[str]) -> None:
    turned = names[::-1]
    assert sorted(turned, key=natural) == names


@given(st.lists(st.text("ab01²٣-", max_size=6), unique=True))
def test_any_names_have_an_order_and_no_two_the_same_place(names: list[str]) -> None:
    assert len({natural(name) for name in names}) == len(names)
    turned = names[::-1]
    assert sorted(names, key=natural) == sorted(turned, key=natural)


def test_short_names_can_be_told_apart() -> None:
    assert short_names(["n1", "n2"], 16) == {"n1": "n1", "n2": "n2"}
    cloud = [f"ip-10-0-{n}-17.us-west-2.compute.internal" for n in (3, 200)]
    assert list(short_names(cloud, 16).values()) == ["ip-10-0-3-17…", "ip-10-0-200-17…"]
    tail = [f"gke-pool-of-many-gpus-{n}" for n in (17, 18)]
    assert list(short_names(tail, 16).values()) == ["…of-many-gpus-17", "…of-many-gpus-18"]
    head = [f"{n}-has-the-same-long-ending" for n in ("a", "b")]
    assert list(short_names(head, 16).values()) == head, "nothing shorter tells them apart"
    assert short_names(["only.one.name.in.a.domain"], 8) == {"only.one.name.in.a.domain": "only…"}
    assert short_names([], 16) == {}


@given(st.lists(st.text("ab.-1", min_size=1, max_size=30), unique=True), st.integers(3, 20))
def test_no_two_short_names_are_alike(names: list[str], width: int) -> None:
    drawn = short_names(names, width)
    assert list(drawn) == names
    assert len(set(drawn.values())) == len(names)
    for name, short in drawn.items():
        assert short == name or ("…" in short and name.startswith(short.partition("…")[0]))

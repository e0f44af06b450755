"""Names of racks and nodes: in natural order everywhere, and never two alike."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.files import covey, inference, member, node, role, write
from covey.picture.floor import Ground, build_floor, natural, path_order, short_names
from covey.placement.model import Level, Topology

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


def test_nodes_without_a_level_come_last() -> None:
    assert sorted([("b", None), ("b", "r2"), ("b", "r10")], key=path_order) == [("b", "r2"), ("b", "r10"), ("b", None)]


def test_racks_that_differ_in_zeros_only_are_two_boxes() -> None:
    topology = Topology("t", (Level("rack", ("r",)),))
    places = [("n1", "r2"), ("n2", "r02"), ("n3", "r2"), ("n4", "r02")]
    grounds = [Ground(name, (rack,), {"cpu": 1000}, {}) for name, rack in places]
    boxes = build_floor(topology, grounds, [], title="t").boxes
    assert [(box.name, len(box.nodes)) for box in boxes] == [("r02", 2), ("r2", 2)]


@pytest.mark.parametrize("form", ["table", "picture"])
def test_a_plan_names_racks_in_natural_order(tmp_path: Path, form: str) -> None:
    nodes = [node(f"n{rack}-{n}", 8, {BLOCK: "b", RACK: f"rack-{rack}"}) for rack in (10, 2) for n in range(2)]
    pods = [member("llm", "w", 0, 0, "n10-0"), member("llm", "w", 1, 0, "n2-0")]
    files = ["-f", write(tmp_path / "in.yaml", [inference("llm", role("w", 2, 2))])]
    files += ["--nodes", write(tmp_path / "n.json", nodes), "--pods", write(tmp_path / "p.json", pods)]
    (line,) = [each for each in covey("plan", *files, "-o", form).stdout.splitlines() if "rack-10" in each]
    assert line.index("rack-2") < line.index("rack-10")


def test_top_names_racks_in_natural_order(tmp_path: Path) -> None:
    nodes = [node(f"n{rack}-{n}", 8, {BLOCK: "b", RACK: f"rack-{rack}"}) for rack in (10, 2, 1) for n in range(2)]
    told = covey("top", "--nodes", write(tmp_path / "n.json", nodes)).stdout
    assert [line.split()[1] for line in told.splitlines() if "rack-" in line] == ["rack-1", "rack-2", "rack-10"]


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

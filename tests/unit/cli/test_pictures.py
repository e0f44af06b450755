"""The floor, its picture in characters: every pod is there, with and without colours, at every size."""

import io
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from builders.files import EXAMPLES, covey
from covey.cli.picture.text import print_picture
from covey.picture.floor import DomainMark, Floor, NodeUsage, Spot, build_floor
from covey.placement.model import Level, Topology

GPU = "nvidia.com/gpu"
TOPOLOGY = Topology(
    "kueue", (Level("zone", ("z",)), Level("block", ("b",)), Level("rack", ("r",)), Level("host", ("h",)))
)
OFFLINE = ("--nodes", EXAMPLES / "offline/nodes.json", "--pods", EXAMPLES / "offline/pods.json")


def ground(block: int, rack: int, number: int, used: int = 0, closed: str | None = None, gpus: int = 8) -> NodeUsage:
    name = f"n{block}-{rack}-{number}"
    return NodeUsage(name, ("z", f"b{block}", f"r{rack}", name), {GPU: gpus, "cpu": 64_000}, {GPU: used}, closed)


def grounds(blocks: int, racks: int, nodes: int) -> list[NodeUsage]:
    return [ground(b, r, n) for b in range(blocks) for r in range(racks) for n in range(nodes)]


def spot(
    node: str, role: str = "prefill", replica: int = 0, gpus: int = 8, unit: int = 0, workload: str = "ns/llm"
) -> Spot:
    return Spot(workload, unit, role, replica, 0, f"{role}-{replica}", node, {GPU: gpus} if gpus else {"cpu": 1000})


def draw(floor: Floor, width: int = 120, *, colour: bool = False) -> str:
    out = io.StringIO()
    system = "truecolor" if colour else None
    print_picture(floor, Console(file=out, width=width, force_terminal=colour, color_system=system, highlight=False))
    return out.getvalue()


def test_a_small_floor_is_drawn_whole() -> None:
    floor = build_floor(
        TOPOLOGY,
        [ground(0, 0, 0), ground(0, 0, 1, used=2), ground(0, 1, 0), ground(0, 1, 1, closed="cordoned")],
        [spot("n0-0-0"), spot("n0-1-0", "decode", gpus=4), spot("n0-1-0", "router", gpus=0)],
        title="ns/llm",
    )
    assert draw(floor).splitlines() == [
        "ns/llm  topology kueue · zone z · block b0 · 4 nodes",
        "╭ rack r0 ────── 6 free ╮ ╭ rack r1 ────── 4 free ╮",
        "│ n0-0-0 PPPPPPPP P0    │ │ n0-1-0 DDDD□□□□ D0 R0 │",
        "│ n0-0-1 ▒▒□□□□□□       │ │ n0-1-1 ╳╳╳╳╳╳╳╳       │",  # noqa: RUF001 - drawn, not read
        "╰───────────────────────╯ ╰───────────────────────╯",
        "",
        "P prefill   D decode   R router   ▒ others   □ free   ╳ closed   a cell is one GPU",  # noqa: RUF001 - drawn, not read
    ]


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.integers(0, 8)), max_size=40),
    st.integers(20, 200),
)
def test_the_picture_counts_right_for_any_floor(places: list[tuple[int, int, int, int]], width: int) -> None:
    spots: dict[str, Spot] = {}
    for number, (block, rack, node, gpus) in enumerate(places):
        spots[f"n{block}-{rack}-{node}"] = spot(f"n{block}-{rack}-{node}", replica=number, gpus=gpus)
    floor = build_floor(TOPOLOGY, grounds(4, 4, 4), list(spots.values()), title="t")
    wanted = sum(each.requests.get(GPU, 0) for each in spots.values())
    assert sum(box.ours for box in floor.boxes) == wanted
    assert sum(box.free for box in floor.boxes) == 4 * 4 * 4 * 8 - wanted
    assert len(floor.runs) == len(spots)
    draw(floor, width)


@pytest.mark.parametrize("racks", [3, 32])
def test_the_domain_that_a_refusal_names_is_marked(racks: int) -> None:
    marks = {("z", "b1", "r2"): DomainMark.NEAREST}
    floor = build_floor(TOPOLOGY, grounds(2, racks, 4), [], title="t", marks=marks)
    text = draw(floor)
    assert "rack r2 ◀ nearest" in text
    assert "chosen" not in text


def test_long_names_in_pictures_can_be_told_apart() -> None:
    def long(rack: int, number: int) -> NodeUsage:
        name = f"ip-10-0-{rack}-{number}.us-west-2.compute.internal"
        return NodeUsage(name, ("z", "b", f"a-long-prefix-of-all-racks-r{rack}", name), {GPU: 8}, {})

    nodes = [long(rack, number) for rack in range(3) for number in range(3)]
    floor = build_floor(TOPOLOGY, nodes, [spot(nodes[0].name)], title="t")
    for rack in range(3):
        assert len(re.findall(rf"ip-10-0-{rack}-\d…", draw(floor))) == 3
        assert f"-r{rack}" in draw(floor)
    lines = [line for line in draw(floor, 70).splitlines() if line.startswith(("╭", "│", "╰"))]
    assert max(map(len, lines)) <= 70


def test_colours_only_on_a_terminal_and_never_when_unwanted(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments: list[Any] = ["plan", "-f", EXAMPLES / "disaggregated.yaml", *OFFLINE, "-o", "tree"]
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    colours = re.compile(r"\x1b\[[0-9;]*3[0-9]")
    assert colours.search(covey(*arguments).stdout)
    assert not colours.search(covey(*arguments, "--no-color").stdout)
    assert not colours.search(covey(*arguments, env={"NO_COLOR": "1"}).stdout)

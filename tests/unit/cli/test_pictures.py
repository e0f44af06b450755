"""The floor, its picture in characters: every pod is there, with and without colours, at every size."""

import io
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from builders.files import EXAMPLES, covey, plan
from covey.cli.picture.text import print_picture
from covey.picture.floor import Floor, Ground, Mark, Spot, build_floor, device_word, main_resource
from covey.placement.model import Level, Topology

GPU = "nvidia.com/gpu"
TOPOLOGY = Topology(
    "kueue", (Level("zone", ("z",)), Level("block", ("b",)), Level("rack", ("r",)), Level("host", ("h",)))
)
OFFLINE = ("--nodes", EXAMPLES / "offline/nodes.json", "--pods", EXAMPLES / "offline/pods.json")


def ground(block: int, rack: int, number: int, used: int = 0, closed: str | None = None, gpus: int = 8) -> Ground:
    name = f"n{block}-{rack}-{number}"
    return Ground(name, ("z", f"b{block}", f"r{rack}", name), {GPU: gpus, "cpu": 64_000}, {GPU: used}, closed)


def grounds(blocks: int, racks: int, nodes: int) -> list[Ground]:
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


@pytest.mark.parametrize("colour", [False, True])
def test_every_replica_is_named_and_counted(colour: bool) -> None:  # noqa: FBT001 - a parameter
    spots = [spot(f"n0-0-{number}", role, number) for number, role in enumerate(["prefill"] * 3 + ["decode"] * 3)]
    text = draw(build_floor(TOPOLOGY, grounds(2, 2, 6), spots, title="t"), colour=colour)
    assert ("\x1b[" in text) == colour
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    for tag in ("P0", "P1", "P2", "D3", "D4", "D5"):
        assert plain.count(f" {tag} ") == 1
    if colour:
        assert plain.count("■") == 6 * 8 + 2  # and two in the legend
    else:
        assert sum(line.count("P") for line in plain.splitlines() if line.startswith("│")) == 3 * 8 + 3
    assert "48 of 96 GPU left" in plain


def test_units_are_told_apart_in_tags() -> None:
    spots = [spot("n0-0-0", unit=0), spot("n0-0-1", unit=1)]
    text = draw(build_floor(TOPOLOGY, grounds(1, 2, 2), spots, title="t"))
    assert " P0.0 " in text
    assert " P1.0 " in text


def test_roles_get_letters_of_their_own() -> None:
    spots = [spot("n0-0-0", "prefill"), spot("n0-0-0", "proxy", gpus=0), spot("n0-0-0", "p", gpus=0)]
    letters = [owner.letter for owner in build_floor(TOPOLOGY, grounds(1, 1, 1), spots, title="t").owners]
    assert len(set(letters)) == 3


def test_no_line_is_wider_than_the_terminal() -> None:
    spots = [spot(f"n0-{rack}-0", replica=rack) for rack in range(6)]
    floor = build_floor(TOPOLOGY, grounds(3, 6, 4), spots, title="t")
    for width in (60, 80, 100, 160):
        drawn = [line for line in draw(floor, width).splitlines() if line.startswith(("╭", "│", "╰"))]
        assert drawn
        assert max(map(len, drawn)) <= width


def test_a_narrow_terminal_gets_one_cell_for_each_node() -> None:
    floor = build_floor(TOPOLOGY, grounds(2, 2, 4), [spot("n0-0-1")], title="t")
    text = draw(floor, 20)
    assert "╭" not in text
    assert "·P··" in text


def test_what_takes_no_part_is_summed_up() -> None:
    floor = build_floor(TOPOLOGY, grounds(18, 16, 18), [spot("n3-2-5")], title="t")
    text = draw(floor)
    assert len(text.splitlines()) < 80
    assert "n3-2-5" in text
    assert "n3-3-1" not in text
    assert text.count("16 racks, 288 nodes") == 17


def test_the_best_domain_of_a_refusal_is_drawn_whole() -> None:
    floor = build_floor(TOPOLOGY, grounds(18, 16, 18), [], title="t", marks={("z", "b7", "r4"): Mark.NEAREST})
    text = draw(floor)
    assert "n7-4-17" in text
    assert "n7-5-1" not in text


def test_many_devices_are_drawn_to_a_scale_and_cpu_in_shares() -> None:
    shared = [ground(0, 0, 0, gpus=64)]
    floor = build_floor(TOPOLOGY, shared, [spot("n0-0-0", gpus=8)], title="t")
    assert (floor.scale, floor.boxes[0].cells, floor.boxes[0].ours) == (4, 16, 2)
    plain = [Ground("n", ("z",), {"cpu": 64_000}, {})]
    small = Spot("w", 0, "r", 0, 0, "p", "n", {"cpu": 8000})
    floor = build_floor(Topology("t", (Level("zone", ("z",)),)), plain, [small], title="t", wanted=[{"cpu": 8000}])
    assert (floor.resource, floor.boxes[0].cells, floor.boxes[0].ours) == ("cpu", 8, 1)


def test_the_resource_is_what_is_asked_for_most() -> None:
    nodes = [Ground("n", (), {GPU: 8, "rdma/ib": 100}, {})]
    assert main_resource([{"cpu": 1, GPU: 1}], nodes) == GPU
    assert main_resource([], [Ground("n", (), {"amd.com/gpu": 8, "cpu": 1}, {})]) == "amd.com/gpu"
    assert main_resource([{"cpu": 1}], [Ground("n", (), {"cpu": 1}, {})]) == "cpu"
    assert [device_word(name) for name in (GPU, "google.com/tpu", "cpu", "nvidia.com/mig-1g.10gb")] == [
        "GPU",
        "TPU",
        "CPU",
        "mig-1g.10gb",
    ]


def test_no_nodes_are_no_error() -> None:
    floor = build_floor(TOPOLOGY, [], [], title="t")
    assert "0 nodes" in draw(floor)


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
    marks = {("z", "b1", "r2"): Mark.NEAREST}
    floor = build_floor(TOPOLOGY, grounds(2, racks, 4), [], title="t", marks=marks)
    text = draw(floor)
    assert "rack r2 ◀ nearest" in text
    assert "chosen" not in text


def test_the_domain_that_holds_a_unit_is_marked_but_its_idle_racks_stay_small() -> None:
    marks = {("z", "b1"): Mark.CHOSEN}
    floor = build_floor(TOPOLOGY, grounds(2, 32, 4), [spot("n1-0-0"), spot("n1-1-0")], title="t", marks=marks)
    assert [box.focus for box in floor.boxes[1].boxes] == [True, True, *[False] * 30]
    assert "GPU left ◀ chosen" in draw(floor)


def test_a_host_that_is_named_marks_its_rack_and_a_level_that_all_share_marks_nothing() -> None:
    host = build_floor(TOPOLOGY, grounds(2, 2, 2), [], title="t", marks={("z", "b1", "r1", "n1-1-0"): Mark.NEAREST})
    assert re.findall(r"(\w+ \w+) ◀ nearest", draw(host)) == ["rack r1"]
    shared = build_floor(TOPOLOGY, grounds(1, 2, 2), [], title="t", marks={("z", "b0"): Mark.CHOSEN, (): Mark.NEAREST})
    assert "◀" not in draw(shared)


def test_a_plan_marks_what_its_verdict_names() -> None:
    fits = covey("plan", "-f", EXAMPLES / "router.yaml", *OFFLINE, "-o", "picture").stdout
    (unit,) = plan("-f", EXAMPLES / "router.yaml", *OFFLINE)["workloads"][0]["units"]
    assert re.search(rf"{unit['placement'][-1]['path'][-1]}\b.*◀ chosen", fits)
    large = covey("plan", "-f", EXAMPLES / "too-big.yaml", *OFFLINE, "-o", "picture").stdout
    (reason,) = plan("-f", EXAMPLES / "too-big.yaml", *OFFLINE)["workloads"][0]["reasons"]
    assert re.search(rf"{reason['bestDomain'][-1]}\b.*◀ nearest", large)


def test_long_names_in_pictures_can_be_told_apart() -> None:
    def long(rack: int, number: int) -> Ground:
        name = f"ip-10-0-{rack}-{number}.us-west-2.compute.internal"
        return Ground(name, ("z", "b", f"a-long-prefix-of-all-racks-r{rack}", name), {GPU: 8}, {})

    nodes = [long(rack, number) for rack in range(3) for number in range(3)]
    floor = build_floor(TOPOLOGY, nodes, [spot(nodes[0].name)], title="t")
    for rack in range(3):
        assert len(re.findall(rf"ip-10-0-{rack}-\d…", draw(floor))) == 3
        assert f"-r{rack}" in draw(floor)
    lines = [line for line in draw(floor, 70).splitlines() if line.startswith(("╭", "│", "╰"))]
    assert max(map(len, lines)) <= 70


@pytest.mark.parametrize("form", ["table", "wide", "tree", "picture"])
def test_every_form_shows_where_an_example_lands(form: str) -> None:
    result = covey("plan", "-f", EXAMPLES / "disaggregated.yaml", *OFFLINE, "-o", form)
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    for words in ("prefill", "decode", "llama"):
        assert words in result.stdout


@pytest.mark.parametrize("form", ["table", "wide", "tree", "picture"])
def test_every_form_says_why_one_does_not_fit(form: str) -> None:
    result = covey("plan", "-f", EXAMPLES / "too-big.yaml", *OFFLINE, "-o", form)
    assert result.exit_code == 3
    words = " ".join(result.stdout.split())
    assert "no rack has room for a replica of 8 pods" in words


def test_colours_only_on_a_terminal_and_never_when_unwanted(monkeypatch: pytest.MonkeyPatch) -> None:
    arguments: list[Any] = ["plan", "-f", EXAMPLES / "disaggregated.yaml", *OFFLINE, "-o", "tree"]
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    colours = re.compile(r"\x1b\[[0-9;]*3[0-9]")
    assert colours.search(covey(*arguments).stdout)
    assert not colours.search(covey(*arguments, "--no-color").stdout)
    assert not colours.search(covey(*arguments, env={"NO_COLOR": "1"}).stdout)

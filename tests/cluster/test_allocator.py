"""Devices as they are counted, against kube-scheduler's own allocator: a Go program around its package (``dev/tools``)."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import pytest

from builders.devices import DRIVER, GPU, IS_GPU, JUDGED, SAMPLE, Json, claim_body, class_body, device, read, slice_body
from builders.members import pod
from builders.requests import make_node
from covey.placement.cluster.device_claims import DeviceAsk
from covey.placement.cluster.resources import amounts
from covey.placement.cluster.selectors import DeviceCondition, canonical_selector, in_turn, parse_selector
from covey.placement.cluster.slices import DeviceCounts
from localcluster.binaries import ensure_tool

CASES: Final = 3000
SELECTORS: Final = (
    IS_GPU,
    "device.driver == 'gpu.nvidia.com'",
    f"{IS_GPU} && device.attributes['gpu.nvidia.com'].index in [0, 2]",
    f"({IS_GPU}) && device.attributes['gpu.nvidia.com'].ecc == true",
    "device.capacity['gpu.nvidia.com'].memory.compareTo(quantity('80Gi')) >= 0 && device.driver == 'gpu.nvidia.com'",
    "device.attributes['gpu.nvidia.com'].type == 'gpu'",
    "device.attributes['gpu.nvidia.com'].driverVersion == '1.0.0' && device.driver == 'gpu.nvidia.com'",
)
#: Of devices that count nothing, as the allocator may still give them away.
SPECIAL: Final[Sequence[Json]] = ({"bindingConditions": ["a"], "bindingFailureConditions": ["b"]},)


def a_device(dice: random.Random, name: str) -> Json:
    found = device(name, dice.choice(["gpu", "gpu", "gpu", "mig"]))
    found["attributes"] |= {"index": {"int": dice.randrange(3)}, "ecc": {"bool": dice.random() < 0.7}}
    if dice.random() < 0.05:
        del found["attributes"][dice.choice(["type", "index", "ecc"])]
    if dice.random() < 0.3:
        found["attributes"]["driverVersion"] = {"version": "1.0.0"}
    if dice.random() < 0.8:
        found["capacity"] = {"memory": {"value": dice.choice(["79Gi", "80Gi", "81920Mi", "141G"])}}
    if dice.random() < 0.1:
        found["taints"] = [{"key": "k", "effect": dice.choice(["None", "NoSchedule", "NoExecute"])}]
    return found | (dice.choice(SPECIAL) if dice.random() < 0.01 else {})


def a_case(seed: int) -> Json:
    """Some pools of one node and another: most of them whole, others in every state of being written."""
    dice = random.Random(seed)
    slices: list[Json] = []
    for pool, node in (("p", "n1"), ("q", "n1"), ("r", "n2")):
        parts = dice.randrange(3)
        of = parts if dice.random() < 0.8 else dice.randrange(1, 4)
        driver = DRIVER if dice.random() < 0.9 else "nic.example.com"
        for part in range(parts):
            names = dice.sample(["d0", "d1", "d2", "d3"], dice.randrange(4))
            devices = [a_device(dice, f"{name}-{part if dice.random() < 0.95 else 0}") for name in names]
            at = node if dice.random() < 0.95 else "n2"
            more = {"generation": dice.choice([1] * 9 + [2]), "of": of if dice.random() < 0.95 else 1, "pool": pool}
            slices.append(slice_body(f"{pool}{part}", *devices, node=at, driver=driver, **more))
    known = [
        (each["spec"]["driver"], each["spec"]["pool"]["name"], found["name"])
        for each in slices
        for found in each["spec"]["devices"]
    ]
    taken = dice.sample(known, min(len(known), dice.choice([0, 0, 1, 2])))
    return {"slices": slices, "class": class_body(DRIVER, dice.choice(SELECTORS)), "node": "n1", "taken": taken}


def count(case: Mapping[str, Any]) -> int:
    """What Covey counts."""
    counts = DeviceCounts()
    setters: list[tuple[Callable[[Any], object], Json]] = [
        *((counts.set_slice, each) for each in case["slices"]),
        (counts.set_class, case["class"]),
        (counts.set_claim, claim_body("c", *case["taken"])),
    ]
    for setter, body in setters:
        setter(read(body))
    return amounts(counts.extend(make_node(case["node"], gpus=0)).status.allocatable)[GPU]


def pools_of(case: Mapping[str, Any]) -> Mapping[tuple[str, str], list[Json]]:
    found: dict[tuple[str, str], list[Json]] = {}
    for each in case["slices"]:
        found.setdefault((each["spec"]["driver"], each["spec"]["pool"]["name"]), []).append(each["spec"])
    return found


def is_cautious(case: Mapping[str, Any]) -> bool:
    """Covey may count less: special devices; pools in two generations, or whose slices disagree or are on two nodes."""
    pools = pools_of(case).values()
    mixed = any(
        len({(each["pool"]["generation"], each["pool"]["resourceSliceCount"]) for each in p}) > 1 for p in pools
    )
    spread = any(len({each["nodeName"] for each in p}) > 1 for p in pools)
    devices = [found for p in pools for each in p for found in each["devices"]]
    return mixed or spread or any("bindingConditions" in each for each in devices)


def fails(case: Mapping[str, Any], judge: DeviceCondition | None = None) -> bool:
    """The selector fails on a device of the node; the allocator may find enough before it comes to that."""
    judge = judge or parse_selector(case["class"]["spec"]["selectors"][0]["cel"]["expression"])
    slices = [read(each).spec for each in case["slices"]]
    local = [(each.driver, found) for each in slices if each.node_name == case["node"] for found in each.devices or ()]
    return any(judge(driver, found) is None for driver, found in local)


def allocate(cases: Sequence[Json]) -> list[int]:
    """How many devices the allocator gives in each case; -1 for an error."""
    text = "\n".join(map(json.dumps, cases))
    command = [ensure_tool("allocator", report=False)]
    return [
        int(each)
        for each in subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout.split()
    ]


@pytest.mark.slow
def test_selectors_say_what_cel_says() -> None:
    there = slice_body("s", SAMPLE)
    cases = [{"slices": [there], "class": class_body(DRIVER, each), "node": "n1", "taken": []} for each, _ in JUDGED]
    answers: Mapping[int, bool | None] = {1: True, 0: False, -1: None}
    assert [answers[each] for each in allocate(cases)] == [answer for _, answer in JUDGED]


@pytest.mark.slow
def test_devices_are_counted_as_the_allocator_gives_them() -> None:
    cases = [a_case(seed) for seed in range(CASES)]
    told = allocate(cases)
    equal = exact = 0
    for case, theirs in zip(cases, told, strict=True):
        ours = count(case)
        if theirs < 0 or fails(case):
            assert ours == 0, case
        elif is_cautious(case):
            assert ours <= theirs, case
        else:
            assert ours == theirs, case
            exact += theirs > 0
        equal += ours == max(theirs, 0)
    print(f"{equal} of {CASES} equal, {exact} of them above 0 and bound to be equal")
    assert exact > 0.2 * CASES


#: What gangs ask for side by side: parts of a class by selectors, and another class. Each device is in one at most.
PARTS: Final[Sequence[tuple[str, tuple[str, ...]]]] = (
    (DRIVER, ("device.attributes['gpu.nvidia.com'].index == 0",)),
    (
        DRIVER,
        ("device.attributes['gpu.nvidia.com'].index in [1, 2]", "device.attributes['gpu.nvidia.com'].ecc == true"),
    ),
    ("mig", ()),
)


def count_parts(case: Mapping[str, Any], classes: Mapping[str, Json]) -> list[int]:
    """What Covey counts of each part, all of them asked for at once."""
    counts, asks = DeviceCounts(), [DeviceAsk(name, tuple(map(canonical_selector, each))) for name, each in PARTS]
    for each in case["slices"]:
        counts.set_slice(read(each))
    counts.set_claim(read(claim_body("c", *case["taken"])))
    counts.ask(pod("asker", gpus=0), asks)
    for class_ in classes.values():
        counts.set_class(read(class_))
    found = amounts(counts.extend(make_node(case["node"], gpus=0)).status.allocatable)
    return [found.get(ask.resource, 0) for ask in asks]


@pytest.mark.slow
def test_parts_of_classes_are_counted_as_the_allocator_gives_them_to_requests() -> None:
    classes = {
        DRIVER: class_body(DRIVER, IS_GPU, resource=None),
        "mig": class_body("mig", IS_GPU.replace("== 'gpu'", "== 'mig'"), resource=None),
    }
    cases, questions = [a_case(seed) for seed in range(CASES)], []
    for case in cases:
        for name, selectors in PARTS:
            said = [{"cel": {"expression": each}} for each in selectors]
            questions.append(case | {"class": classes[name], "selectors": said})
    told = iter(allocate(questions))
    exact = 0
    for case in cases:
        for part, ours in enumerate(count_parts(case, classes)):
            theirs = next(told)
            name, selectors = PARTS[part]
            judge = in_turn([parse_selector(each["cel"]["expression"]) for each in classes[name]["spec"]["selectors"]])
            judge = in_turn([judge, *map(parse_selector, selectors)])
            if theirs < 0 or fails(case, judge):
                assert ours == 0, (case, part)
            elif is_cautious(case):
                assert ours <= theirs, (case, part)
            else:
                assert ours == theirs, (case, part)
                exact += theirs > 0
    print(f"{exact} of {len(questions)} above 0 and bound to be equal")
    assert exact > 0.1 * CASES

"""Gangs whose pods have ResourceClaims: what of nodes these take, which are refused by name, and where they tie pods to."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from builders.devices import (
    DRIVER,
    GPU,
    Json,
    claim_body,
    class_body,
    device,
    gpus,
    request_body,
    slice_body,
    tell,
    wish_body,
)
from builders.members import cache, drop, node, pod, put, root_key
from covey.api import core
from covey.placement.cluster.classes import MOST_OF_NAMESPACE, MOST_SELECTED
from covey.placement.cluster.device_claims import DeviceAsk, UnsupportedClaimError, asks_of
from covey.placement.cluster.selectors import canonical_selector
from covey.scheduler.cache import Cache
from scheduler_loop import Loop, tree

MIG = "mig.nvidia.com"
CLAIMED = f"{DRIVER}.deviceclass.resource.k8s.io/devices"
SMALL = "device.attributes['gpu.nvidia.com'].profile == '1g'"


def claim(name: str, *requests: Json, have: tuple[tuple[str, str, str], ...] = (), on: str = "", **more: Any) -> Json:
    body = claim_body(name, *have) | {"spec": wish_body(*requests, **more)}
    if on:
        field = {"key": "metadata.name", "operator": "In", "values": [on]}
        body["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return body


def with_claims(pod: core.Pod, *made: str, named: str = "") -> core.Pod:
    """The pod with claims of templates, which have been made, or with one that it names."""
    if named:
        return replace(pod, spec=replace(pod.spec, resource_claims=({"name": "n", "resourceClaimName": named},)))
    claims = tuple({"name": each, "resourceClaimTemplateName": "t"} for each in made)
    statuses = tuple(core.PodClaimStatus(name=each, resource_claim_name=each) for each in made)
    return replace(
        pod,
        spec=replace(pod.spec, resource_claims=claims),
        status=replace(pod.status, resource_claim_statuses=statuses),
    )


def gang(name: str, *requests: Json, made: Cache, replicas: int = 1, **more: Any) -> list[core.Pod]:
    """Tell of a gang whose pods have a claim each."""
    pods = []
    for each in tree(name, replicas=replicas, minimum=replicas, gpus=0):
        if isinstance(each, core.Pod):
            own = f"{each.metadata.name}-c"
            tell(made, claim(own, *requests, **more))
            pods.append(with_claims(each, own))
        put(made, pods[-1] if isinstance(each, core.Pod) else each)
    return pods


def cluster(*classes: Json, nodes: int = 1, devices: list[Json] | None = None) -> Cache:
    names = [f"n{number + 1}" for number in range(nodes)]
    made = cache(*(node(name, gpus=0) for name in names))
    for each in classes or (class_body(),):
        tell(made, each)
    for name in names:
        tell(made, slice_body(f"slice-{name}", *(devices or gpus(4)), node=name))
    return made


def parts() -> list[Json]:
    """Four small devices and two large ones of a class."""
    found = [device(f"d{number}", "mig") for number in range(6)]
    for number, each in enumerate(found):
        each["attributes"]["profile"] = {"string": "1g" if number < 4 else "3g"}
    return found


def mig_class() -> Json:
    return class_body(
        MIG, "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == 'mig'", resource=None
    )


@pytest.mark.parametrize(("count", "plugin", "reason"), [(33, 0, "Unsupported"), (32, 0, None), (33, 64, None)])
async def test_a_pod_when_its_devices_are_more_than_one_claim_may_have_is_refused_by_name(
    count: int, plugin: int, reason: str | None
) -> None:
    """A device plugin makes no claim."""
    made = cluster(devices=gpus(40))
    if plugin:
        put(made, node("n2", gpus=plugin))
    for each in tree("many", gpus=count):
        put(made, each)
    loop = Loop(made)
    assert bool(await loop.turn()) is (reason is None)
    decision = loop.queue.decision(root_key("many"))
    assert decision.reason == reason
    assert reason is None or "33 nvidia.com/gpu, and the one claim that is made for it may have 32" in decision.message


@pytest.mark.parametrize("of", ["g", None])
async def test_what_anybody_asks_for_when_no_device_is_held_for_it_costs_a_gang_nothing(of: str | None) -> None:
    """Pods that wait, of a gang or of none, with or without a gate of others: their selectors are judged, and that is all."""
    made = cluster(mig_class(), devices=parts())
    tell(made, claim("early", request_body(1, SMALL, of=MIG)))
    before = pod("early", group=of, gpus=0, gates=("example.com/never",), created="2020-01-01T00:00:00Z")
    early = with_claims(before, "early")
    put(made, early)
    put(made, replace(early, spec=replace(early.spec, scheduling_gates=None)))
    gang("whole", request_body(6, of=MIG), made=made)
    loop = Loop(made)
    assert len(await loop.turn()) == 1


async def test_what_bound_pods_have_refuses_nobody() -> None:
    made = cluster(mig_class(), devices=parts())
    tell(made, claim("old", request_body(2, of=MIG), have=((DRIVER, "n1", "d0"), (DRIVER, "n1", "d4"))))
    old = with_claims(pod("old", group="g", gpus=0, created="2020-01-01T00:00:00Z", node="n1", phase="Running"), "old")
    put(made, old)
    gang("part", request_body(3, SMALL, of=MIG), made=made)
    loop = Loop(made)
    assert len(await loop.turn()) == 1
    gang("more", request_body(1, SMALL, of=MIG), made=made)
    await loop.turn()
    assert loop.queue.decision(root_key("more")).reason == "Infeasible"


BANK = "device.attributes['gpu.nvidia.com'].bank == 0"


@pytest.mark.parametrize(
    ("part", "whole", "fits"),
    [
        pytest.param((2, SMALL), (4, None), True, id="a part, and what it leaves of the whole"),
        pytest.param((2, SMALL), (5, None), False, id="a part, and more than it leaves"),
        pytest.param((2, SMALL), (2, BANK), True, id="two that overlap, within the larger of both"),
        pytest.param((2, SMALL), (3, BANK), False, id="two that overlap, of which one may take all that both want"),
    ],
)
@pytest.mark.parametrize("first", ["part", "whole"])
async def test_requests_that_overlap_when_their_devices_are_not_allocated_yet_take_the_worst_case(
    part: tuple[int, str | None], whole: tuple[int, str | None], first: str, *, fits: bool
) -> None:
    """kube-scheduler may give either the devices that both could take; neither refuses the other, whoever came first."""
    devices = parts()
    for number, body in enumerate(devices):
        body["attributes"]["bank"] = {"int": number % 2}
    made = cluster(mig_class(), devices=devices)
    wishes = {"part": part, "whole": whole}
    for name in sorted(wishes, key=lambda name: name != first):
        count, selector = wishes[name]
        gang(name, request_body(count, *filter(None, [selector]), of=MIG), made=made)
    loop = Loop(made)
    placed = {name.partition("-")[0] for name in await loop.turn()}
    reasons = {loop.queue.decision(root_key(name)).reason for name in wishes}
    assert (len(placed), reasons) == ((2, {None}) if fits else (1, {None, "Infeasible"}))


async def test_requests_that_overlap_on_some_nodes_take_nothing_of_each_other_on_others() -> None:
    """On the second node no device meets both."""
    overlapping, apart = parts(), parts()
    for number, body in enumerate(overlapping):
        body["attributes"]["bank"] = {"int": number % 3}
    for number, body in enumerate(apart):
        body["attributes"] |= {"profile": {"string": "3g" if number % 2 else "1g"}, "bank": {"int": 1 - number % 2}}
    made = cluster(mig_class(), devices=overlapping)
    put(made, node("n2", gpus=0))
    tell(made, slice_body("slice-n2", *apart, node="n2"))
    gang("small", request_body(1, SMALL, of=MIG), made=made)
    gang("bank", request_body(1, BANK, of=MIG), made=made)
    await made.devices.steady.wait()
    [shared] = made.devices.counts.classes.shared
    assert {name: made.capacity.room.free(name)[shared] for name in ("n1", "n2")} == {"n1": 4, "n2": 6}


async def test_namespaces_when_selectors_are_too_many_take_turns() -> None:
    """Four of eight odd selectors each do not refuse what a fifth asks for."""
    made = cluster()
    counts = made.devices.counts
    for namespace in range(4):
        for number in range(MOST_OF_NAMESPACE):
            asker = core.Pod(core.Meta(name=f"p{number}", namespace=f"t{namespace}", uid=f"{namespace}-{number}"))
            counts.ask(asker, [DeviceAsk(DRIVER, (canonical_selector(f"{SMALL[:-4]}'{namespace}-{number}'"),))])
    own = DeviceAsk(DRIVER, (canonical_selector(SMALL),))
    counts.ask(core.Pod(core.Meta(name="mine", namespace="t9", uid="mine")), [own])
    for _ in counts.judge():
        pass
    assert counts.classes.refusal(own) is None
    assert len(counts.classes.conditions) == 1 + MOST_SELECTED


async def test_a_selector_that_takes_all_of_some_nodes_and_none_of_others_is_counted_with_its_class() -> None:
    """Nodes of one product each, which the class counts as well."""
    made = cluster()
    new = [device(f"b-{number}", "gpu") for number in range(4)]
    for each in new:
        each["attributes"]["productName"] = {"string": "B200"}
    put(made, node("n2", gpus=0))
    for number, old in enumerate(found := gpus(4)):
        old["attributes"]["productName"] = {"string": "H200"}
        assert number < len(found)
    tell(made, slice_body("slice-n1", *found), "MODIFIED")
    tell(made, slice_body("slice-n2", *new, node="n2"))
    gang("one", request_body(3, "device.attributes['gpu.nvidia.com'].productName == 'B200'"), made=made)
    loop = Loop(made)
    assert set((await loop.turn()).values()) == {"n2"}
    assert made.capacity.room.free("n2")[GPU] == 1


def test_a_claim_in_flight_is_counted_once_and_those_of_a_pod_each_by_itself() -> None:
    made = cluster(class_body(), mig_class(), devices=[*gpus(4), *parts()])
    [member] = gang("one", request_body(3), request_body(1, of=MIG, name="m"), made=made)
    made.assume(member, "n1")
    name = f"{member.metadata.name}-c"

    def free() -> tuple[int, int]:
        found = made.capacity.room.free("n1")
        return found[CLAIMED], found[f"{MIG}.deviceclass.resource.k8s.io/devices"]

    assert free() == (1, 5)
    have = tuple((DRIVER, "n1", f"gpu-{number}") for number in range(3))
    both = (request_body(3), request_body(1, of=MIG, name="m"))
    tell(made, claim(name, *both, have=have), "MODIFIED")
    assert free() == (1, 5), "the other device is promised still"
    tell(made, claim(name, *both, have=(*have, (DRIVER, "n1", "d0"))), "MODIFIED")
    assert free() == (1, 5)
    drop(made, member)
    assert CLAIMED not in made.capacity.room.free("n1"), "nobody asks any more"
    assert made.capacity.room.free("n1")[GPU] == 1, "its claim goes after it"
    tell(made, claim(name, *both), "DELETED")
    assert made.capacity.room.free("n1")[GPU] == 4


async def test_a_tenant_with_too_many_selectors_is_refused_and_nobody_else() -> None:
    made = cluster(nodes=3)
    for number in range(MOST_OF_NAMESPACE + 1):
        gang(f"g{number}", request_body(1, f"device.attributes['gpu.nvidia.com'].x == {number}"), made=made)
    await made.devices.steady.wait()
    loop = Loop(made)
    assert await loop.turn() == {}
    refused = [loop.queue.decision(root_key(f"g{n}")).message for n in range(MOST_OF_NAMESPACE + 1)]
    assert sum("is one too many" in each for each in refused) == 1


async def test_thousands_of_odd_claims_cost_little_and_are_refused_by_name() -> None:
    """A tenant may write claims of classes that nobody has, and selectors that differ, as many as his quota allows."""
    made = cluster(nodes=3)
    selectors = [f"device.attributes['gpu.nvidia.com'].x == {number}" for number in range(100)]
    for number, each in enumerate(selectors):
        gang(f"a{number}", request_body(1, each), made=made)
        gang(f"b{number}", request_body(1, of=f"nobodys-{number}"), made=made)
    await made.devices.steady.wait()
    classes = made.devices.counts.classes
    assert len(classes.conditions) == 1 + MOST_OF_NAMESPACE
    assert not classes.refused
    loop = Loop(made)
    assert await loop.turn() == {}
    assert "is one too many" in loop.queue.decision(root_key("a99")).message
    assert "DeviceClass nobodys-7, which does not exist" in loop.queue.decision(root_key("b7")).message
    # What is not judged gives no reason to judge all devices anew.
    judged = classes.follow()
    assert judged.judges_like(classes)


async def test_a_pod_that_has_ended_asks_for_nothing_and_shares_no_claim() -> None:
    made = cluster()
    tell(made, claim("mine", request_body(4)))
    old = next(each for each in tree("old", gpus=0) if isinstance(each, core.Pod))
    old = with_claims(replace(old, spec=replace(old.spec, node_name="n1")), named="mine")
    put(made, old)
    for each in tree("one", gpus=0):
        put(made, with_claims(each, named="mine") if isinstance(each, core.Pod) else each)
    loop = Loop(made)
    assert await loop.turn() == {}
    assert "named by several pods" in loop.queue.decision(root_key("one")).message
    put(made, replace(old, status=replace(old.status, phase="Succeeded")))
    assert await loop.turn() != {}


async def test_a_claim_that_nobody_has_is_counted_for_one_pod_and_refused_for_two() -> None:
    made = cluster()
    tell(made, claim("mine", request_body(4)))
    found = tree("one", replicas=2, minimum=2, gpus=0)
    pods = [with_claims(each, named="mine") for each in found if isinstance(each, core.Pod)]
    for each in (*(each for each in found if not isinstance(each, core.Pod)), *pods):
        put(made, each)
    loop = Loop(made)
    assert await loop.turn() == {}
    decision = loop.queue.decision(root_key("one"))
    assert decision.reason == "Unsupported"
    assert "ResourceClaim mine is named by several pods and not allocated yet" in decision.message
    alone = cluster()
    tell(alone, claim("mine", request_body(5)))
    for each in tree("one", gpus=0):
        put(alone, with_claims(each, named="mine") if isinstance(each, core.Pod) else each)
    loop = Loop(alone)
    assert await loop.turn() == {}
    assert loop.queue.decision(root_key("one")).reason == "Infeasible"


def test_one_spelling_for_blanks_and_no_loss_of_what_differs() -> None:
    def ask(*selectors: str) -> Any:
        return next(iter(asks_of(msgspec.convert(wish_body(request_body(1, *selectors)), core.DeviceClaimSpec))))

    assert ask(" device.driver  == 'a'") == ask("device.driver=='a'")
    other = SMALL.replace("gpu.nvidia.com'", "x.com'")
    assert ask(SMALL).resource != ask(other).resource
    with pytest.raises(UnsupportedClaimError):
        ask("(" * 900)
    with pytest.raises(UnsupportedClaimError, match="of more than 1,000 characters"):
        ask(" && ".join(f"device.driver == '{number}'" for number in range(100)))


def test_what_is_free_does_not_depend_on_the_order_of_events() -> None:
    have = tuple((DRIVER, "n1", f"gpu-{number}") for number in range(2))
    found = next(each for each in tree("one", gpus=0) if isinstance(each, core.Pod))
    bound = with_claims(replace(found, spec=replace(found.spec, node_name="n1")), "c")
    events = (
        claim("c", request_body(2), have=have),
        slice_body("slice-n1", *gpus(4), generation=2),
        class_body(DRIVER, "device.driver == 'gpu.nvidia.com'"),
        bound,
    )
    for order in permutations(events):
        made = cluster()
        for each in order:
            put(made, each) if isinstance(each, core.Pod) else tell(made, each)
        free = made.capacity.room.free("n1")
        assert (free[GPU], free[CLAIMED]) == (2, 2), order


async def test_a_channel_of_a_compute_domain_is_one_a_node() -> None:
    driver, name = "compute-domain.nvidia.com", "compute-domain-default-channel.nvidia.com"
    kinds = f"device.driver == '{driver}' && device.attributes['{driver}'].type == 'channel'"
    made = cluster(
        class_body(), class_body(name, f"{kinds} && device.attributes['{driver}'].id == 0", resource=None), nodes=2
    )
    for number in (1, 2):
        channels = [device(f"channel-{n}", "channel") for n in range(3)]
        for n, each in enumerate(channels):
            each["attributes"]["id"] = {"int": n}
        tell(made, slice_body(f"domain-{number}", *channels, node=f"n{number}", driver=driver))
    gang("one", request_body(1, of=name), request_body(1, name="g"), made=made, replicas=2)
    await made.devices.steady.wait()
    loop = Loop(made)
    assert sorted((await loop.turn()).values()) == ["n1", "n2"]
    gang("two", request_body(1, of=name), made=made)
    await loop.turn()
    assert loop.queue.decision(root_key("two")).reason == "Infeasible"


CHANNEL = "compute-domain-default-channel.nvidia.com"


def exclusive(name: str, made: Cache) -> list[core.Pod]:
    """A gang of one pod, a unit of its own, whose interconnect shares no clique."""
    found = []
    for number, each in enumerate(gang(name, request_body(of=CHANNEL), made=made)):
        labels = {**(each.metadata.labels or {}), "covey.dev/unit": name}
        claims = ({"name": "covey-interconnect-exclusive", "resourceClaimTemplateName": "t"},)
        statuses = (core.PodClaimStatus(name=claims[0]["name"], resource_claim_name=f"{each.metadata.name}-c"),)
        found.append(
            replace(
                each,
                metadata=replace(each.metadata, labels=labels),
                spec=replace(each.spec, resource_claims=claims),
                status=replace(each.status, resource_claim_statuses=statuses),
            )
        )
        put(made, found[number])
    return found


def two_of_one_clique() -> Cache:
    """Two nodes of one clique, each with a channel."""
    made = cluster(
        class_body(CHANNEL, "device.driver == 'gpu.nvidia.com'", resource=None),
        nodes=2,
        devices=[device("c", "channel")],
    )
    for name in ("n1", "n2"):
        put(made, node(name, gpus=0, labels={"nvidia.com/gpu.clique": "c0"}))
    return made


async def test_of_two_exclusive_units_that_are_planned_at_once_one_gets_the_clique() -> None:
    made = two_of_one_clique()
    pods = {each.metadata.uid: each for name in ("one", "two") for each in exclusive(name, made)}
    loop = Loop(made)
    placed = await loop.turn()
    assert len(placed) == 1
    assert await loop.turn() == {}
    (late,) = (name for name in ("one", "two") if loop.queue.decision(root_key(name)).reason == "Infeasible")
    assert "exclusive interconnect" in loop.queue.decision(root_key(late)).message
    drop(made, next(each for each in pods.values() if late not in each.metadata.name))
    assert len(await loop.turn()) == 1


async def test_a_place_is_doubted_once_another_interconnect_is_in_its_clique() -> None:
    """A pod that another scheduler has bound: the barrier, and pins that are under way, ask this."""
    made = two_of_one_clique()
    (mine,) = exclusive("one", made)
    assert made.capacity.refusal_in_place(mine, "n1") is None
    tell(made, claim("x", request_body(of=CHANNEL), have=(("gpu.nvidia.com", "n2", "c"),)))
    stranger = with_claims(core.Pod(core.Meta(name="x", namespace="ns", uid="x"), core.PodSpec(node_name="n2")), "x")
    put(made, stranger)
    assert made.capacity.refusal_in_place(mine, "n1") == "exclusive interconnect"
    drop(made, stranger)
    assert made.capacity.refusal_in_place(mine, "n1") is None

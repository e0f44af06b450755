"""The backend Kubernetes on a real control plane of 1.37: its own groups, kube-scheduler and controller-manager."""

from collections.abc import Collection, Iterator

import pytest
import yaml

from cluster.serving import BLOCK, RACK
from cluster.workbench import name_of, uids
from localcluster import NATIVE_GROUPS, Cluster, Nodes, eventually
from localcluster.programs import ROOT
from matrix.native import Native, first_bound, first_seen, namespaced, start_operator, whole


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """The demo's nodes: 2 blocks of 3 racks of 6 nodes."""
    with Cluster(gates=NATIVE_GROUPS, scheduler_config="") as running:
        running.add_nodes(Nodes(blocks=2, racks=3, nodes=6))
        running.apply(yaml.safe_load((ROOT / "examples" / "topology.yaml").read_text()))
        start_operator(running)
        yield running


@pytest.fixture
def native(cluster: Cluster) -> Iterator[Native]:
    yield from namespaced(cluster)


def test_the_demos_example_ends_bound(native: Native) -> None:
    """16 pods of a node each: every replica in one rack, all in one block, the minimum before any surplus."""
    with native.cluster.record(native.path("Pod")) as pods:
        name = native.apply_example()
        bound = native.await_bound(16)
        pods.wait(lambda events: len(first_bound(events)) == 16)
    assert len(native.domains(bound, BLOCK)) == 1
    for role, count in (("prefill", 4), ("decode", 2)):
        for number in range(count):
            assert len(native.domains(native.bound(role=role, replica=number), RACK)) == 1
    seen, when = first_seen(pods.events), first_bound(pods.events)
    minimum = {host for host in seen if host.startswith(("0-prefill-0-", "0-decode-0-"))}
    assert len(minimum) == 6
    assert max(when[host] for host in minimum) < min(at for host, at in seen.items() if host not in minimum)
    native.await_condition("Available", "True", name=name)
    assert native.condition("BackendSupported", name)["status"] == "True"
    native.delete("DisaggregatedInference", name)
    native.await_nothing_left()


def test_a_minimum_without_room_starts_nothing_and_says_why(native: Native) -> None:
    native.create(whole("prefill", replicas=2, size=2), whole("decode", replicas=2, minReplicas=2, size=20))
    message = native.await_condition("Admitted", "False", "Unschedulable")
    assert message
    assert not native.bound()
    assert len(native.pods()) == 2 + 40, "no pod of the surplus is there"
    # Room for less: the change is taken at once, for nothing of it runs.
    native.delete("DisaggregatedInference", "llm")


def test_min_count_is_patched(native: Native) -> None:
    roles = [whole("prefill", size=2), whole("decode", replicas=3)]
    native.create(*roles)
    before = native.await_bound(5)
    group = native.groups("PodGroup")["llm-0-decode"]["metadata"]["uid"]
    native.change({"roles": [roles[0], {**roles[1], "minReplicas": 3}]})

    def patched() -> bool:
        found = native.groups("PodGroup")["llm-0-decode"]
        return bool(found["spec"]["schedulingPolicy"]["gang"]["minCount"] == 3 and found["metadata"]["uid"] == group)

    eventually(patched, describe="minCount is patched")
    template = native.groups("Workload")["llm"]["spec"]["compositePodGroupTemplates"][0]["podGroupTemplates"][0]
    assert template["schedulingPolicy"] == {"gang": {"minCount": 3}}
    assert uids(native.await_bound(5)) == uids(before)


def test_min_group_count_is_changed_gang_by_gang(native: Native) -> None:
    """The API refuses it: each unit is made anew, one at a time, beside the one that serves."""
    roles = [whole("prefill", replicas=2, size=2), whole("decode")]
    native.create(*roles, replicas=2)
    native.await_bound(10)
    before = uids(native.pods())
    with native.cluster.record(native.path("Pod")) as pods:
        native.change({"roles": [{**roles[0], "minReplicas": 2}, roles[1]]})

        def remade() -> bool:
            groups = native.groups("CompositePodGroup").items()
            least = [
                each["spec"]["schedulingPolicy"]["gang"]["minGroupCount"]
                for name, each in groups
                if name.endswith("-prefill")
            ]
            return least == [2, 2] and not before & uids(native.pods())

        eventually(remade, 120, "both units are made anew")
        after = native.await_bound(10)
    assert len(after) == 10
    # Two units had all of their pods bound at any time.
    assert _least_bound(pods.events, before) >= 10
    eventually(lambda: "UnitRemade" in native.events(), describe="it is announced")


def _least_bound(events: list[tuple[str, dict]], before: Collection[str]) -> int:  # type: ignore[type-arg] # plain JSON
    """The fewest pods that had nodes, and were not on their way out, at any time."""
    bound, least = set(before), len(before)
    for kind, pod in events:
        metadata, uid = pod["metadata"], pod["metadata"]["uid"]
        is_there = kind != "DELETED" and not metadata.get("deletionTimestamp") and pod["spec"].get("nodeName")
        (bound.add if is_there else bound.discard)(uid)
        least = min(least, len(bound))
    return least


@pytest.fixture(scope="module")
def priorities(cluster: Cluster) -> None:
    for name, value in (("low", 100), ("high", 1000)):
        body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": "PreemptLowerPriority"}
        cluster.api("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)


@pytest.mark.usefixtures("priorities")
def test_preemption_takes_a_unit_whole(native: Native) -> None:
    """Two nodes are wanted by what has a higher priority, and the unit that has all 36 goes as one."""
    native.create(whole("prefill", size=20), whole("decode", size=16), name="low", priorityClassName="low")
    before = native.await_bound(36)
    groups = [*native.groups("PodGroup").values(), *native.groups("CompositePodGroup").values()]
    assert {(group["spec"]["priority"], tuple(group["spec"]["disruptionMode"])) for group in groups} == {
        (100, ("all",))
    }
    native.create(whole("prefill", size=2), name="high", priorityClassName="high")
    native.await_bound(2, timeout=120, inference="high")

    def gone() -> bool:
        pods = native.pods(inference="low")
        assert not uids(before) & uids(pods), "some are left"
        assert not native.bound(inference="low")
        return len(pods) == 36

    eventually(gone, 120, "all pods of the unit are replaced, and wait")
    native.delete("DisaggregatedInference", "high")
    native.await_bound(36, timeout=120)


@pytest.mark.usefixtures("priorities")
def test_what_preemption_takes_is_changed_unit_by_unit(native: Native) -> None:
    native.create(whole("prefill", size=2), whole("decode"), disruptionMode="Replica", priorityClassName="low")
    before = native.await_bound(3)
    modes = {name: next(iter(group["spec"]["disruptionMode"])) for name, group in native.groups("PodGroup").items()}
    assert modes == {"llm-0-prefill-0": "all", "llm-0-decode": "single"}
    native.change({"disruptionMode": "Pod"})

    def remade() -> bool:
        found = native.groups("PodGroup").values()
        return len(found) == 2 and all("single" in group["spec"]["disruptionMode"] for group in found)

    eventually(remade, 60, "the unit is made anew")
    assert not uids(before) & uids(native.await_bound(3))


def test_a_level_is_changed_unit_by_unit(native: Native) -> None:
    # All of a unit is its minimum: kube-scheduler would put five into a rack where no node is left for the sixth, and
    # the unit beside it would be waited for until its deadline.
    native.create(whole("prefill", size=4), whole("decode", replicas=2, minReplicas=2))
    before = native.await_bound(6)
    native.change({"topology": {"required": "rack"}})
    eventually(lambda: not uids(before) & uids(native.bound()), 60, "the unit is made anew")
    assert len(native.domains(native.await_bound(6), RACK)) == 1
    eventually(lambda: "UnitRemade" in native.events(), describe="it is announced")


# What users do to groups


def test_a_group_deleted_under_running_pods(native: Native) -> None:
    """The pods run on. When the replica is replaced, its group is another one."""
    native.create(whole("prefill", size=2), whole("decode", replicas=2))
    before = native.await_bound(4)
    old = native.groups("PodGroup")["llm-0-prefill-0"]["metadata"]["uid"]
    for name in ("llm-0-prefill-0", "llm-0-decode"):
        native.delete("PodGroup", name)
    eventually(
        lambda: native.groups("PodGroup")["llm-0-prefill-0"]["metadata"].get("deletionTimestamp"),
        describe="it is going",
    )
    assert uids(native.await_bound(4)) == uids(before)
    native.delete("Pod", name_of(native.pods(role="prefill")[0]))
    eventually(
        lambda: native.groups("PodGroup").get("llm-0-prefill-0", {"metadata": {"uid": old}})["metadata"]["uid"] != old,
        describe="the group is another one",
    )
    native.await_bound(4)
    # A single pod joins those that keep the other group.
    native.delete("Pod", name_of(native.pods(role="decode")[0]))
    eventually(lambda: len(uids(native.pods(role="decode")) & uids(before)) == 1, describe="one is replaced")
    native.await_bound(4)


def test_composites_and_the_workload_deleted_under_running_pods(native: Native) -> None:
    native.create(whole("prefill", replicas=2, size=2), whole("decode"))
    before = native.await_bound(5)
    gone = {
        kind: {name: item["metadata"]["uid"] for name, item in native.groups(kind).items()}
        for kind in ("Workload", "CompositePodGroup")
    }
    for kind, found in gone.items():
        for name in found:
            native.delete(kind, name)

    def anew() -> bool:
        return all(
            (there := native.groups(kind)).keys() == found.keys()
            and all(there[name]["metadata"]["uid"] != uid for name, uid in found.items())
            for kind, found in gone.items()
        )

    eventually(anew, describe="all of them are made anew")
    assert uids(native.await_bound(5)) == uids(before)
    # The tree works: a replica that is lost finds its place in it.
    native.delete("Pod", name_of(native.pods(role="prefill", replica=1)[0]))
    eventually(lambda: len(uids(native.pods()) & uids(before)) == 3, describe="the replica is recreated")
    native.await_bound(5)


def test_an_edited_workload_and_group(native: Native) -> None:
    native.create(whole("prefill", size=2), whole("decode", replicas=2))
    native.await_bound(4)
    edit = {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    native.cluster.api("PATCH", native.path("PodGroup", "llm-0-decode"), edit)

    def restored() -> bool:
        policy = native.groups("PodGroup")["llm-0-decode"]["spec"]["schedulingPolicy"]
        return bool(policy["gang"]["minCount"] == 1)

    eventually(restored, describe="minCount is ours again")
    path = "/spec/compositePodGroupTemplates/0/podGroupTemplates/0/schedulingPolicy/gang/minCount"
    native.cluster.api("PATCH", native.path("Workload", "llm"), [{"op": "replace", "path": path, "value": 2}])

    def reset() -> bool:
        templates = native.groups("Workload")["llm"]["spec"]["compositePodGroupTemplates"][0]["podGroupTemplates"]
        return bool(templates[0]["schedulingPolicy"]["gang"]["minCount"] == 1)

    eventually(reset, describe="the template is ours again")


def test_a_group_deleted_before_anything_is_placed(native: Native) -> None:
    native.create(whole("prefill", size=2), whole("decode", size=40))
    native.await_condition("Admitted", "False", "Unschedulable")
    old = native.groups("PodGroup")["llm-0-decode-0"]["metadata"]["uid"]
    native.delete("PodGroup", "llm-0-decode-0")
    eventually(
        lambda: native.groups("PodGroup").get("llm-0-decode-0", {"metadata": {"uid": old}})["metadata"]["uid"] != old,
        describe="the group is another one",
    )
    eventually(lambda: len(native.pods()) == 42, describe="its pods are there again")


# What is refused


def test_refusals_come_before_anything_is_made(native: Native) -> None:
    native.create(whole("prefill", size=2, topology={"preferred": "rack"}), whole("decode"), spread={"level": "rack"})
    message = native.await_condition("BackendSupported", "False", "Unsupported")
    assert "spec.roles[prefill].topology.preferred" in message
    assert "spec.spread" in message
    assert not native.groups("Workload")
    assert not native.pods()

"""The groups of Kubernetes 1.37: a golden tree to be read, and what holds of any."""

from collections import Counter
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from builders.inferences import inference, inferences, role
from covey.api import constants as names
from covey.api.inference import DisaggregatedInference
from covey.backends.kubernetes import Hierarchical
from covey.compile import Layout, Revision, Scale, Tree, type_of
from unit.backends.native import LEVELS, Object, check_workload, key, llama, policy, templates


def compiled(wanted: DisaggregatedInference) -> Tree:
    return Hierarchical().compile(wanted, levels=LEVELS)


def groups(tree: Tree) -> list[Object]:
    return [body for body in tree.objects() if body["kind"] in {"PodGroup", "CompositePodGroup"}]


def test_a_level_no_finer_than_the_units_adds_nothing() -> None:
    same = compiled(inference(role("a", size=2, topology={"required": "block"}), topology={"required": "rack"}))
    assert [key(body["spec"]) for body in groups(same)] == ["cloud.provider.com/topology-rack", None, None]


def test_pods_have_no_gate_and_none_of_coveys_group_labels() -> None:
    for body in compiled(llama()).objects():
        if body["kind"] == "Pod":
            assert "schedulingGates" not in body["spec"]
            assert names.LABEL_POD_GROUP not in body["metadata"]["labels"]


@given(inferences())
def test_any_tree_is_one_that_the_api_server_takes(wanted: DisaggregatedInference) -> None:
    tree = compiled(wanted)
    bodies = [body for body in tree.objects() if body["kind"] not in {"Service", "Pod"}]
    identities = [(type_of(body), body["metadata"]["name"]) for body in bodies]
    assert len(identities) == len(set(identities))
    names_of: dict[str, Any] = {}
    for body in bodies:
        if body["kind"] == "Workload":
            check_workload(body)
            names_of = {template["name"]: template for _, template in templates(body)}
    known: set[str] = set()
    for body in groups(tree):
        spec = body["spec"]
        parent = spec.get("parentCompositePodGroupName")
        assert parent is None or parent in known, "parents come first"
        if body["kind"] == "CompositePodGroup":
            known.add(body["metadata"]["name"])
            assert spec["workloadRef"]["templateName"] in names_of
        elif parent is not None:
            assert spec["workloadRef"]["templateName"] in names_of
        assert min(policy(spec).values()) >= 1


@given(inferences())
def test_any_units_minimum_is_that_of_its_gang(wanted: DisaggregatedInference) -> None:
    """Every gang role counts once under the root, by replicas whatever their size; others do not stand there."""
    tree = compiled(wanted)
    by_name = {(body["kind"], body["metadata"]["name"]): body for body in groups(tree)}
    gang = {role.name: role for role in wanted.spec.roles if role.min_replicas}
    for unit in tree.layout.units:
        root = by_name["CompositePodGroup", next(n for k, n in by_name if _is_root(by_name[k, n], unit))]
        children = [
            body
            for body in by_name.values()
            if body["spec"].get("parentCompositePodGroupName") == root["metadata"]["name"]
        ]
        assert policy(root["spec"]) == {"minGroupCount": len(gang)}
        assert Counter(_role(child) for child in children) == dict.fromkeys(gang, 1)
        for child in children:
            [least] = policy(child["spec"]).values()
            assert least == gang[_role(child)].min_replicas


@given(inferences())
def test_every_pod_is_in_a_group_that_is_there(wanted: DisaggregatedInference) -> None:
    tree = compiled(wanted)
    there = {(type_of(body), body["metadata"]["name"]) for body in tree.objects() if body["kind"] != "Pod"}
    for slot in tree.slots:
        assert tree.pods.anchor(slot) in there
        pod = tree.pods.build_named(slot, "x")
        group = pod["spec"].get("schedulingGroup")
        role_of = next(role for role in wanted.spec.roles if role.name == slot.role)
        assert (group is None) == (role_of.size == 1 and not role_of.min_replicas)
        if group is not None:
            assert tree.pods.anchor(slot) == ("PodGroup.v1beta1.scheduling.k8s.io", group["podGroupName"])


@given(inferences(), st.randoms(use_true_random=False))
def test_every_pod_is_in_a_group_while_sizes_are_rolled(wanted: DisaggregatedInference, random: Random) -> None:
    """Replicas of two sizes side by side, in roles of either."""
    revision = Revision.of(wanted.spec)
    units = {
        unit: {
            name: {number: each.of_size(random.choice([1, each.size, 3])) for number, each in replicas.items()}
            for name, replicas in roles.items()
        }
        for unit, roles in Layout.fresh(Scale.of(wanted.spec), revision).units.items()
    }
    tree = Hierarchical().compile(wanted, layout=Layout(units), revision=revision, levels=LEVELS)
    there = {(type_of(body), body["metadata"]["name"]) for level in tree.levels for body in level.objects}
    assert {tree.pods.anchor(slot) for slot in tree.slots} <= there
    for body in groups(tree):
        parent = body["spec"].get("parentCompositePodGroupName")
        assert parent is None or ("CompositePodGroup.v1alpha3.scheduling.k8s.io", parent) in there
        assert min(policy(body["spec"]).values()) >= 1


def _is_root(body: Object, unit: int) -> bool:
    labels = body["metadata"]["labels"]
    return (
        body["kind"] == "CompositePodGroup" and names.LABEL_ROLE not in labels and labels[names.LABEL_UNIT] == str(unit)
    )


def _role(body: Object) -> str:
    return str(body["metadata"]["labels"][names.LABEL_ROLE])

"""What Kubernetes 1.38 changes for its groups: a later version of one kind, with rules and conditions of its own.

The rules are those of 1.38.0-beta.0 (``pkg/apis/scheduling/validation``, and the tags of ``v1beta1``): read, not run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given

from builders.inferences import inference, inferences, role
from covey.api import constants as names
from covey.api.inference import DisaggregatedInference
from covey.backends import Cluster, Owned, find, within
from covey.backends.kubernetes import Hierarchical
from covey.backends.kubernetes.shared import COMPOSITE_POD_GROUPS, COMPOSITE_POD_GROUPS_1_38, POD_GROUPS
from covey.compile import Tree
from covey.kube.resources import Resource
from covey.operator.model.problem import Problem
from covey.operator.validation import AcceptedSpec
from unit.backends.native import LEVELS, Object, llama
from unit.operator.world import World

OLD, NEW = Hierarchical.of("1.37"), Hierarchical.of("1.38")
KEPT = frozenset(probe.name for probe in NEW.probes())
#: API servers that serve CompositePodGroups in one version, or in both.
BEFORE, AFTER = (Cluster(frozenset({gone}), KEPT) for gone in (COMPOSITE_POD_GROUPS_1_38, COMPOSITE_POD_GROUPS))
BOTH = Cluster(kept=KEPT)


def compiled(backend: Hierarchical, wanted: DisaggregatedInference) -> Tree:
    return backend.compile(wanted, levels=LEVELS)


def groups(tree: Tree) -> list[Object]:
    return [body for body in tree.objects() if body["kind"] in {"Workload", "CompositePodGroup", "PodGroup"}]


def test_tree_differs_from_that_of_137_by_the_version_of_one_kind() -> None:
    old, new = (groups(compiled(backend, llama())) for backend in (OLD, NEW))
    assert {body["apiVersion"] for body in old} == {"scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha3"}
    assert {body["apiVersion"] for body in new} == {"scheduling.k8s.io/v1beta1"}
    assert [body | {"apiVersion": ""} for body in old] == [body | {"apiVersion": ""} for body in new]


@given(inferences())
def test_any_tree_obeys_the_rules_of_138(wanted: DisaggregatedInference) -> None:
    """A gang of gangs, ``all`` of ``all``, one priority, four levels at most: in templates and in groups."""
    bodies = groups(compiled(NEW, wanted))
    [workload] = [body for body in bodies if body["kind"] == "Workload"]
    _check_templates(workload["spec"], depth=0)
    by_name = {body["metadata"]["name"]: body["spec"] for body in bodies if body["kind"] == "CompositePodGroup"}
    for body in bodies:
        if body["kind"] == "Workload":
            continue
        spec, depth = body["spec"], 1
        assert spec.get("priorityClassName") == wanted.spec.priority_class_name
        while "parentCompositePodGroupName" in spec:
            child, spec, depth = spec, by_name[spec["parentCompositePodGroupName"]], depth + 1
            _check_child(spec, child)
        assert depth <= 4


def _check_templates(parent: Object, depth: int) -> None:
    assert depth <= 4
    for child in (*parent.get("compositePodGroupTemplates", ()), *parent.get("podGroupTemplates", ())):
        if depth:
            _check_child(parent, child)
        _check_templates(child, depth + 1)


def _check_child(parent: Object, child: Object) -> None:
    assert "gang" in child["schedulingPolicy"] or "gang" not in parent["schedulingPolicy"]
    assert "all" in child["disruptionMode"] or "all" not in parent["disruptionMode"]
    assert "gang" in child["schedulingPolicy"] or "all" not in child["disruptionMode"]


@pytest.mark.parametrize(("backend", "fixed"), [(OLD, True), (NEW, False)], ids=["1.37", "1.38"])
def test_minimum_of_a_role_when_it_changes_is_followed_in_place_from_138_on(
    backend: Hierarchical,
    fixed: bool,  # noqa: FBT001 - a column
) -> None:
    before, after = (
        compiled(backend, inference(role("prefill", size=2, replicas=3, minReplicas=least))).objects()
        for least in (1, 2)
    )
    kinds = {"CompositePodGroup", "Workload"}
    found = [
        backend.is_fixed(owned(old, backend), new)
        for old, new in zip(before, after, strict=True)
        if old["kind"] in kinds and old["spec"] != new["spec"]
    ]
    assert found == [fixed, fixed]


def owned(body: Object, backend: Hierarchical, **status: Any) -> Owned:
    """An object as it is stored."""
    metadata = {**body["metadata"], "uid": "u", "annotations": {names.ANNOTATION_FIXED: backend.fixed_fields(body)}}
    return msgspec.convert({"metadata": metadata, "spec": body["spec"], "status": status}, Owned)


def test_priorities_of_the_system_are_taken_by_groups_of_138() -> None:
    wanted = llama(priorityClassName="system-cluster-critical")
    assert any("priority above" in sentence for sentence in OLD.refusals(wanted.spec, LEVELS, BEFORE))
    assert not any("priority above" in sentence for sentence in NEW.refusals(wanted.spec, LEVELS, AFTER))


@pytest.mark.parametrize(
    ("cluster", "dialect", "absent", "version"),
    [
        (BEFORE, "1.37", False, "v1alpha3"),
        (BOTH, "1.37", False, "v1beta1"),
        (AFTER, "1.37", False, "v1beta1"),
        (BEFORE, "1.38", True, "v1alpha3"),
        (BOTH, "1.38", False, "v1beta1"),
        (AFTER, "1.38", False, "v1beta1"),
    ],
)
def test_what_was_made_on_137_is_looked_after_in_the_version_that_is_served(
    cluster: Cluster,
    dialect: str,
    absent: bool,  # noqa: FBT001 - a column
    version: str,
) -> None:
    backend = find(NEW.name, dialect)
    assert isinstance(backend, Hierarchical)
    assert (backend.absent(cluster) is not None) == absent
    here = within(backend, cluster)
    assert isinstance(here, Hierarchical)
    assert (here.dialect, here.composites.version) == (dialect, version)


SAID = "the tree is nested deeper than 4 levels"


@pytest.mark.parametrize("resource", [COMPOSITE_POD_GROUPS, COMPOSITE_POD_GROUPS_1_38], ids=["1.37", "1.38"])
def test_unit_when_its_root_is_refused_says_what_the_root_says(resource: Resource) -> None:
    """A condition of a CompositePodGroup comes before those of the PodGroups below it."""
    backend = Hierarchical(composites=resource)
    objects = {}
    for body in groups(compiled(backend, llama())):
        kind = resource if body["kind"] == "CompositePodGroup" else POD_GROUPS
        objects[kind.type, body["metadata"]["name"]] = owned(body, backend)
    assert backend.read_back("llama", 0, objects) is not None
    root = objects[resource.type, "llama-0"]
    condition = {"type": "CompositePodGroupInitiallyScheduled", "status": "False", "reason": "CompositePodGroupError"}
    told = msgspec.structs.replace(
        root, status=msgspec.convert({"conditions": [condition | {"message": SAID}]}, type(root.status))
    )
    report = backend.read_back("llama", 0, {**objects, (resource.type, "llama-0"): told})
    assert report is not None
    assert report.admitted is not None
    assert (report.admitted.status, report.admitted.reason, report.admitted.message) == (
        "False",
        "CompositePodGroupError",
        SAID,
    )


class Upgraded(World):
    """A world in which the backend is as the cluster has it, as for the operator."""

    def judge(self, bad_template: Problem | None = None) -> AcceptedSpec:
        verdict = super().judge(bad_template)
        assert verdict.backend is not None
        return replace(verdict, backend=within(verdict.backend, self.cluster))


def test_what_runs_on_137_when_the_api_server_is_138_stays() -> None:
    """The same objects in a later version: nothing is deleted or made, pods least of all."""
    world = Upgraded(inference(role("prefill", size=2), role("decode"), backend="Kubernetes"))
    world.cluster = BEFORE
    world.settle()
    world.serve()
    world.settle()
    pods = set(world.pods)
    world.objects = {
        (kind.replace(COMPOSITE_POD_GROUPS.type, COMPOSITE_POD_GROUPS_1_38.type), name): stored
        for (kind, name), stored in world.objects.items()
    }
    there = {identity: stored.metadata.uid for identity, stored in world.objects.items()}
    world.cluster = AFTER
    world.settle()
    assert set(world.pods) == pods
    assert {identity: stored.metadata.uid for identity, stored in world.objects.items()} == there

"""DynamoGraphDeployment (``nvidia.com/v1alpha1`` and ``v1beta1``): one unit, whose roles are the components.

Dynamo's operator makes one PodCliqueSet of a graph with one replica, in which every component has at least
``minAvailable`` replicas, 1 where nothing is said. It also completes the container ``main`` of every component by its
type and framework; that is Dynamo's own knowledge, and remarked on.
"""

from __future__ import annotations

from typing import Final

from covey.convert.draft import Draft, Object
from covey.convert.dynamo_pods import Shared, pod_template, service_template
from covey.convert.fields import Fields
from covey.convert.templates import add_labels, remark_on

GROUP: Final = "nvidia.com"


def convert(document: Fields, draft: Draft) -> None:
    """Convert a DynamoGraphDeployment."""
    draft.take_metadata(document)
    old = document.text("apiVersion").endswith("/v1alpha1")
    spec = document.child("spec")
    draft.spec["replicas"] = 1
    if name := spec.text("priorityClassName"):
        draft.spec["priorityClassName"] = name
    constraint = spec.child("topologyConstraint")
    for key in ("clusterTopologyName", "topologyProfile"):
        draft.topology_name(constraint.at(key), constraint.text(key))
    draft.constrain(draft.spec, draft.domain(constraint.at("packDomain"), constraint.text("packDomain")), None)
    what = "Dynamo's operator adds command, ports, probes, variables and /dev/shm to the container main; Covey does not"
    draft.remark("spec", what, "write into the templates what the engine needs")
    shared = Shared(
        spec.each("env" if not old else "envs"),
        {key: spec.strings(key) for key in ("labels", "annotations")},
        spec.each("pvcs") if old else [],
    )
    shared.settle(draft)
    if old:
        for name, source in spec.children_by_name("services").items():
            _component(source, source.path, name, service_template(source, shared, draft), draft)
    else:
        for source in spec.each("components"):
            _component(source, source.at("name"), source.text("name"), pod_template(source, shared, draft), draft)


def _component(source: Fields, path: str, name: str, template: Object, draft: Draft) -> None:
    types = {
        "nvidia.com/dynamo-component-type": source.text("type") or source.text("componentType"),
        "nvidia.com/dynamo-sub-component-type": source.text("subComponentType"),
    }
    template = add_labels(template, "labels", {key: value for key, value in types.items() if value})
    replicas = source.number("replicas", 1)
    nodes = source.child("multinode")
    size = nodes.number("nodeCount", 2) if "multinode" in source else 1
    if size > 1:
        what = "Dynamo's operator adds the flags by which the nodes of a replica find each other; Covey does not"
        instead = "use COVEY_LEADER_ADDRESS, COVEY_INDEX and COVEY_SIZE, or LWS_*"
        draft.remark(nodes.path, what, instead)
    remark_on(draft, template, path, r"\b(?:GROVE|DYNAMO)_[A-Z_]+\b", "is not set by Covey", "set it in the template")
    role = draft.add_role(
        path,
        name,
        replicas=replicas,
        minReplicas=min(source.number("minAvailable", 1), replicas),
        size=size,
        template=template,
    )
    _place(source.child("topologyConstraint"), role, draft)
    _scaling(source, role, draft)


def _place(source: Fields, role: Object, draft: Draft) -> None:
    """A domain for each replica of several nodes; for all pods of a component whose replicas are single pods."""
    level = draft.domain(source.at("packDomain"), source.text("packDomain"))
    if level and role["size"] > 1:
        draft.constrain(role, level, None)
    elif level:
        draft.together(source.at("packDomain"), [role], level, "Required")


def _scaling(source: Fields, role: Object, draft: Draft) -> None:
    """Leave the scale to an autoscaler: in v1beta1 where one is there, in v1alpha1 where one is there and enabled."""
    if "scalingAdapter" not in source:
        return
    adapter = source.child("scalingAdapter")
    if "enabled" not in adapter or adapter.flag("enabled"):
        draft.wish(source.at("scalingAdapter"), role, "scaling.mode", "External")

"""Pods as the API server stores them, as far as a plan knows its defaults and its admission.

The rules are those of ``SetDefaults_Pod`` (``pkg/apis/core/v1/defaults.go`` of Kubernetes) and of the admission plugins
LimitRanger, RuntimeClass and ExtendedResourceToleration (``plugin/pkg/admission``). What mutating webhooks add is known
only of templates of which the API server was shown a pod (``cluster.with_samples``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from msgspec import structs

from covey.api import core
from covey.api.constants import LABEL_INDEX, LABEL_INFERENCE, LABEL_REVISION, LABEL_ROLE
from covey.compile import Layout, Scale
from covey.operator.resource_quota.charge import add_defaults
from covey.placement.cluster.node_filters import tolerates
from covey.placement.cluster.resources import is_device, pod_requests
from covey.planning.changes import expand
from covey.planning.facts import ClusterFacts, TemplateKey
from covey.planning.trees import PlannedWorkload

#: Nodes of GKE have it; its API server runs ExtendedResourceToleration.
_GKE_POOL: Final = "cloud.google.com/gke-nodepool"


def template_of(pod: core.Pod) -> TemplateKey:
    """The template that a member was made from, as its labels tell."""
    label = pod.metadata.label
    names = [label(name) or "" for name in (LABEL_INFERENCE, LABEL_ROLE, LABEL_REVISION)]
    return (pod.metadata.namespace, names[0], names[1], names[2], label(LABEL_INDEX) == "0")


def adds_tolerations(facts: ClusterFacts) -> bool:
    """Tell whether the API server adds tolerations of the resources that a pod asks for: that of GKE does."""
    return any(_GKE_POOL in (node.metadata.labels or {}) for node in facts.nodes)


def as_stored(pod: core.Pod, facts: ClusterFacts, *, tolerations: bool) -> core.Pod:
    """Complete a pod that a manifest asks for as the API server would; ``tolerations``: see ``adds_tolerations``."""
    sample = facts.samples.get(template_of(pod))
    if isinstance(sample, core.Pod):
        pod = _made_like(pod, sample)
    elif tolerations:
        pod = _with_tolerations(pod)
    spec, namespace = pod.spec, pod.metadata.namespace
    ranges = [limits for limits in facts.limit_ranges if limits.metadata.namespace == namespace]
    main, first = (
        tuple(_complete(container, ranges, host_network=spec.host_network) for container in containers or ())
        for containers in (spec.containers, spec.init_containers)
    )
    spec = structs.replace(spec, containers=main, init_containers=first or None)
    runtime = facts.runtime_class(spec.runtime_class_name)
    if runtime is not None:
        spec = _with_runtime_class(spec, runtime)
    return structs.replace(pod, spec=spec)


def with_stored_pods(facts: ClusterFacts, pods: Sequence[core.Pod]) -> ClusterFacts:
    """The facts with pods that a manifest asks for beside those that there are; bound ones are as they are."""
    tolerations = adds_tolerations(facts)
    made = (pod if pod.spec.node_name else as_stored(pod, facts, tolerations=tolerations) for pod in pods)
    return replace(facts, pods=(*facts.pods, *made))


def unknown_remarks(workloads: Sequence[PlannedWorkload], facts: ClusterFacts) -> Iterator[str]:
    """Say what the API server would make of pods that do not exist yet, and nothing here tells."""
    tainted = {
        taint
        for node in facts.nodes
        for taint in node.spec.taints or ()
        if taint.effect == "NoSchedule" and taint.key in (node.status.allocatable or {})
    }
    for workload in workloads:
        pods = [*workload.pods.values()]
        if (change := workload.change) is not None:
            # Those that succeed what runs.
            layout = Layout.fresh(Scale.of(change.inference.spec), change.target)
            pods += expand(replace(change, existing={}), layout)[1].values()
        new: dict[object, core.Pod] = {}
        for pod in (pod for pod in pods if not pod.metadata.resource_version):
            new.setdefault(template_of(pod) if pod.metadata.label(LABEL_INFERENCE) else pod.metadata.uid, pod)
        texts = [text for pod in new.values() for text in _remarks(pod, facts, tainted)]
        yield from (f"{workload.title}: {text}" for text in dict.fromkeys(texts))


def _remarks(pod: core.Pod, facts: ClusterFacts, tainted: set[core.Taint]) -> Iterator[str]:
    sample = facts.samples.get(template_of(pod))
    if isinstance(sample, core.Pod):
        return
    if sample:
        known = "its pods are planned as written, with what LimitRanges and RuntimeClasses add"
        yield f"role {pod.metadata.label(LABEL_ROLE)}: {known}; the API server was not asked what else it adds: {sample}"
    name = pod.spec.runtime_class_name
    runtime = facts.runtime_class(name)
    if name and runtime is None:
        yield f"RuntimeClass {name} is not known: its overhead, node selector and tolerations do not count; give it with -f"
    if runtime is not None and runtime.scheduling is not None:
        own, theirs = pod.spec.node_selector or {}, runtime.scheduling.node_selector or {}
        if any(own.get(key, value) != value for key, value in theirs.items()):
            yield f"the API server refuses its pods: their nodeSelector is not that of RuntimeClass {name}"
    asked = pod_requests(pod)
    for key in sorted({taint.key for taint in tainted if taint.key in asked and not _is_tolerated(pod.spec, taint)}):
        plugin = "an API server with the admission plugin ExtendedResourceToleration adds the toleration"
        yield f"its pods do not tolerate the taint {key} of nodes with that resource; {plugin}: write it to plan with it"


def _is_tolerated(spec: core.PodSpec, taint: core.Taint) -> bool:
    return any(tolerates(toleration, taint) for toleration in spec.tolerations or ())


def _made_like(pod: core.Pod, sample: core.Pod) -> core.Pod:
    """A pod with all that a stored pod of its template has, and what is of its own place."""
    own = pod.spec
    spec = structs.replace(
        sample.spec,
        hostname=own.hostname,
        subdomain=own.subdomain,
        scheduling_gates=own.scheduling_gates,
        resource_claims=own.resource_claims,
    )
    labels = {**(sample.metadata.labels or {}), **(pod.metadata.labels or {})}
    return structs.replace(pod, metadata=structs.replace(pod.metadata, labels=labels), spec=spec)


def _complete(container: core.Container, ranges: Sequence[core.LimitRange], *, host_network: bool) -> core.Container:
    """A container with the defaults of its resources, and on the host network with the host ports of its ports."""
    wanted = container.resources or core.Resources()
    amounts: Mapping[str, dict[str, str | int | float]] = add_defaults(
        {"limits": wanted.limits, "requests": wanted.requests}, ranges
    )
    resources = structs.replace(wanted, limits=amounts["limits"] or None, requests=amounts["requests"] or None)
    ports = container.ports
    if host_network and ports:
        ports = tuple(structs.replace(port, host_port=port.host_port or port.container_port) for port in ports)
    return structs.replace(container, resources=resources, ports=ports)


def _with_runtime_class(spec: core.PodSpec, runtime: core.RuntimeClass) -> core.PodSpec:
    overhead = runtime.overhead.pod_fixed if runtime.overhead is not None else None
    scheduling = runtime.scheduling or core.RuntimeScheduling()
    tolerations = dict.fromkeys((*(spec.tolerations or ()), *(scheduling.tolerations or ())))
    return structs.replace(
        spec,
        overhead=overhead or spec.overhead,
        node_selector={**(scheduling.node_selector or {}), **(spec.node_selector or {})} or None,
        tolerations=tuple(tolerations) or None,
    )


def _with_tolerations(pod: core.Pod) -> core.Pod:
    """A pod that tolerates taints called as the extended resources that it asks for."""
    asked = sorted(filter(is_device, pod_requests(pod)))
    more = (core.Toleration(key=name, operator="Exists", effect="NoSchedule") for name in asked)
    tolerations = tuple(dict.fromkeys((*(pod.spec.tolerations or ()), *more))) or None
    return structs.replace(pod, spec=structs.replace(pod.spec, tolerations=tolerations))

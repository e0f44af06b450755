"""Pods, and the constraints on their nodes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from covey.api import constants as names
from covey.api.core.meta import Condition, Meta, Read, seconds


class Requirement(Read, frozen=True):
    """``NodeSelectorRequirement``."""

    key: str
    operator: str
    values: tuple[str, ...] | None = None


class NodeSelectorTerm(Read, frozen=True):
    """``NodeSelectorTerm``: its requirements are AND-ed; an empty term matches nothing."""

    match_expressions: tuple[Requirement, ...] | None = None
    match_fields: tuple[Requirement, ...] | None = None


class NodeSelector(Read, frozen=True):
    """``NodeSelector``: its terms are OR-ed."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(Read, frozen=True):
    """``NodeAffinity``; preferences are the scheduler's own business."""

    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class LabelSelector(Read, frozen=True):
    """``metav1.LabelSelector``."""

    match_labels: dict[str, str] | None = None
    match_expressions: tuple[Requirement, ...] | None = None


def holds(requirement: Requirement, value: str | None) -> bool:
    """Tell whether a requirement of a label selector is true of a label's value (None: there is no such label)."""
    match requirement.operator:
        case "In":
            return value is not None and value in (requirement.values or ())
        case "NotIn":
            return value is None or value not in (requirement.values or ())
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False


def selects(selector: LabelSelector, labels: Mapping[str, str] | None) -> bool:
    """Tell whether a selector is true of some labels; an empty one is of any."""
    known = labels or {}
    return (selector.match_labels or {}).items() <= known.items() and all(
        holds(requirement, known.get(requirement.key)) for requirement in selector.match_expressions or ()
    )


class PodAffinityTerm(Read, frozen=True):
    """``PodAffinityTerm``."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    mismatch_label_keys: tuple[str, ...] | None = None


class PodAffinity(Read, frozen=True):
    """``PodAffinity`` and ``PodAntiAffinity``, their required terms."""

    required: tuple[PodAffinityTerm, ...] | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(Read, frozen=True):
    """``Affinity``."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Read, frozen=True):
    """``Toleration``."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    #: Of NoExecute: for how long. None is for ever.
    toleration_seconds: int | None = None


class TopologySpread(Read, frozen=True):
    """``TopologySpreadConstraint``."""

    when_unsatisfiable: str = "DoNotSchedule"
    topology_key: str = ""
    max_skew: int = 1
    min_domains: int | None = None
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None


class Resources(Read, frozen=True):
    """``ResourceRequirements``; quantities as written."""

    requests: dict[str, str | int | float] | None = None
    limits: dict[str, str | int | float] | None = None
    claims: tuple[dict[str, Any], ...] | None = None


class ContainerPort(Read, frozen=True):
    """``ContainerPort``."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = ""
    protocol: str = "TCP"


class RestartRule(Read, frozen=True):
    """``ContainerRestartRule``."""

    action: str = ""


class VolumeMount(Read, frozen=True):
    """``VolumeMount``, as far as it restricts the choice of a node."""

    bind_mount_options: tuple[str, ...] | None = None


class FieldReference(Read, frozen=True):
    """``ObjectFieldSelector``."""

    field_path: str = ""


class FieldSource(Read, frozen=True):
    """``EnvVarSource`` and ``DownwardAPIVolumeFile``, as far as they read a field of the pod."""

    field_ref: FieldReference | None = None


class Variable(Read, frozen=True):
    """``EnvVar``."""

    value_from: FieldSource | None = None


class Probe(Read, frozen=True):
    """``Probe``: only that there is one."""


class Container(Read, frozen=True):
    """``Container``, as far as scheduling depends on it.

    Of its variables those are kept that read a domain's label, of its mounts those with options.
    """

    name: str = ""
    resources: Resources | None = None
    ports: tuple[ContainerPort, ...] | None = None
    #: ``Always`` on an init container makes it a sidecar.
    restart_policy: str | None = None
    image: str = ""
    env: tuple[Variable, ...] | None = None
    restart_policy_rules: tuple[RestartRule, ...] | None = None
    volume_mounts: tuple[VolumeMount, ...] | None = None
    startup_probe: Probe | None = None
    readiness_probe: Probe | None = None

    def __post_init__(self) -> None:
        """Thousands of pods share a handful of images: each is kept once."""
        msgspec.structs.force_setattr(self, "image", sys.intern(self.image))
        if self.startup_probe is not None:
            msgspec.structs.force_setattr(self, "startup_probe", _PROBE)
        if self.readiness_probe is not None:
            msgspec.structs.force_setattr(self, "readiness_probe", _PROBE)
        if self.env is not None:
            kept = tuple(
                variable for variable in self.env if variable.value_from and _reads_domain(variable.value_from)
            )
            msgspec.structs.force_setattr(self, "env", kept or None)
        if self.volume_mounts is not None:
            mounts = tuple(mount for mount in self.volume_mounts if mount.bind_mount_options)
            msgspec.structs.force_setattr(self, "volume_mounts", mounts or None)


_PROBE: Final = Probe()


class SchedulingGate(Read, frozen=True):
    """``PodSchedulingGate``."""

    name: str


class EvictionResponder(Read, frozen=True):
    """``EvictionResponder``."""

    name: str


class ReadinessGate(Read, frozen=True):
    """``PodReadinessGate``."""

    condition_type: str = ""


class DownwardSource(Read, frozen=True):
    """``DownwardAPIVolumeSource``."""

    items: tuple[FieldSource, ...] = ()


class ProjectedSource(Read, frozen=True):
    """``VolumeProjection``, as far as it shows fields of the pod."""

    downward_api: DownwardSource | None = msgspec.field(name="downwardAPI", default=None)


class Projected(Read, frozen=True):
    """``ProjectedVolumeSource``."""

    sources: tuple[ProjectedSource, ...] | None = None


class Volume(Read, frozen=True):
    """``Volume``, as far as it can restrict the choice of a node or reads labels of the pod."""

    name: str = ""
    persistent_volume_claim: dict[str, Any] | None = None
    ephemeral: dict[str, Any] | None = None
    downward_api: DownwardSource | None = msgspec.field(name="downwardAPI", default=None)
    projected: Projected | None = None


class PodSpec(Read, frozen=True):
    """``PodSpec``."""

    node_name: str | None = None
    host_network: bool = False
    host_users: bool | None = None
    runtime_class_name: str | None = None
    scheduler_name: str = "default-scheduler"
    scheduling_gates: tuple[SchedulingGate, ...] | None = None
    scheduling_group: dict[str, Any] | None = None
    #: Kubernetes 1.35 has it in place of the former.
    workload_ref: dict[str, Any] | None = None
    readiness_gates: tuple[ReadinessGate, ...] | None = None
    eviction_responders: tuple[EvictionResponder, ...] | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] | None = None
    overhead: dict[str, str | int | float] | None = None
    resources: Resources | None = None
    topology_spread_constraints: tuple[TopologySpread, ...] | None = None
    volumes: tuple[Volume, ...] | None = None
    resource_claims: tuple[dict[str, Any], ...] | None = None
    hostname: str | None = None
    subdomain: str | None = None
    active_deadline_seconds: int | None = None


class Overhead(Read, frozen=True):
    """``Overhead`` of a RuntimeClass."""

    pod_fixed: dict[str, str | int | float] | None = None


class RuntimeScheduling(Read, frozen=True):
    """``Scheduling`` of a RuntimeClass."""

    node_selector: dict[str, str] | None = None
    tolerations: tuple[Toleration, ...] | None = None


class RuntimeClass(Read, frozen=True):
    """A RuntimeClass, as far as its pods get something of it."""

    metadata: Meta
    overhead: Overhead | None = None
    scheduling: RuntimeScheduling | None = None


class ContainerWaiting(Read, frozen=True):
    """``ContainerStateWaiting``."""

    reason: str = ""
    message: str = ""


class Terminated(Read, frozen=True):
    """``ContainerStateTerminated``."""

    exit_code: int = 0
    reason: str = ""
    finished_at: str | None = None


class Running(Read, frozen=True):
    """``ContainerStateRunning``."""

    started_at: str | None = None


class ContainerState(Read, frozen=True):
    """``ContainerState``: one of running, waiting and terminated."""

    waiting: ContainerWaiting | None = None
    terminated: Terminated | None = None
    running: Running | None = None


#: Reasons for which a container waits while nothing is wrong (``pkg/kubelet`` of Kubernetes).
_STARTING: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
_PULLING: Final = frozenset({"ErrImagePull", "ImagePullBackOff"})
#: Its message names the ConfigMap, Secret or key that is missing.
_CONFIGURATION: Final = "CreateContainerConfigError"
#: Characters of such a message.
_LONGEST: Final = 200
#: Seconds after which a container that began so long after its pod may have replaced another one.
_LATE: Final = 600.0


class ContainerStatus(Read, frozen=True):
    """``ContainerStatus``: what the kubelet has set aside for a container, what it runs with, how often it began and ended."""

    name: str = ""
    restart_count: int = 0
    ready: bool = False
    #: Its startup probe has passed, or it has none.
    started: bool | None = None
    resources: Resources | None = None
    allocated_resources: dict[str, str | int | float] | None = None
    image_id: str = msgspec.field(name="imageID", default="")
    state: ContainerState | None = None
    last_state: ContainerState | None = None


class PodClaimStatus(Read, frozen=True):
    """``PodResourceClaimStatus``: a claim of the pod's spec that was made for it, or that needs none."""

    name: str = ""
    resource_claim_name: str | None = None


class PodExtendedClaimStatus(Read, frozen=True):
    """``PodExtendedResourceClaimStatus``: the claim that kube-scheduler made for the pod's extended resources."""

    resource_claim_name: str = ""


class PodStatus(Read, frozen=True):
    """``PodStatus``."""

    phase: str = "Pending"
    #: Why a pod has failed, where the kubelet says more than that a container has: ``OutOfcpu``, ``Evicted``.
    reason: str = ""
    conditions: tuple[Condition, ...] | None = None
    nominated_node_name: str | None = None
    start_time: str | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    resource_claim_statuses: tuple[PodClaimStatus, ...] | None = None
    extended_resource_claim_status: PodExtendedClaimStatus | None = None
    #: The generation of the spec that the kubelet has worked by; None below Kubernetes 1.34.
    observed_generation: int | None = None


class Pod(Read, frozen=True):
    """A pod. Containers' statuses are kept only where they tell something: of a resize, restarts, trouble, other images.

    Every running pod has them; kept for all, they would take 1 KB each.
    """

    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def __post_init__(self) -> None:
        """Drop statuses that say what the spec says."""
        if self.status.container_statuses is None and self.status.init_container_statuses is None:
            return
        if self.metadata.annotation(names.ANNOTATION_IN_PLACE) is not None:
            return
        began = self.status.start_time
        if not any(_tells(container, container_status(self, container.name), began) for container in containers(self)):
            # Another pod made of this one may have the same status: that keeps what it has.
            status = msgspec.structs.replace(self.status, container_statuses=None, init_container_statuses=None)
            msgspec.structs.force_setattr(self, "status", status)


def containers(pod: Pod) -> tuple[Container, ...]:
    """All containers, init containers first."""
    return (*(pod.spec.init_containers or ()), *pod.spec.containers)


def reads_domain_labels(pod: Pod) -> bool:
    """A variable reads the label of a domain, or a volume has such a label or all labels."""
    if any(container.env for container in containers(pod)):
        return True
    sources = [volume.downward_api for volume in pod.spec.volumes or ()]
    sources += [
        part.downward_api
        for volume in pod.spec.volumes or ()
        if volume.projected
        for part in volume.projected.sources or ()
    ]
    return any(_reads_domain(item) for source in sources if source for item in source.items)


def _reads_domain(source: FieldSource) -> bool:
    path = source.field_ref.field_path if source.field_ref else ""
    return path == "metadata.labels" or path.startswith(f"metadata.labels['{names.TOPOLOGY_PREFIX}")


def container_status(pod: Pod, name: str) -> ContainerStatus | None:
    """The status of a container, if it is there."""
    statuses = (*(pod.status.container_statuses or ()), *(pod.status.init_container_statuses or ()))
    return next((status for status in statuses if status.name == name), None)


class Trouble(NamedTuple):
    """What keeps a container from running: one word, as ``kubectl get pods`` has it, and a sentence with the container's name."""

    reason: str
    message: str


def container_trouble(pod: Pod, name: str = "") -> Trouble | None:
    """Find the first container of a pod that does not run, and why; None where nothing is known to be wrong.

    Args:
        pod: any pod.
        name: of the only container that is asked about.
    """
    if pod.status.container_statuses is None and pod.status.init_container_statuses is None:
        return None
    for container in (*pod.spec.containers, *(pod.spec.init_containers or ())):
        status = container_status(pod, container.name) if name in {"", container.name} else None
        if status is not None and (trouble := _trouble(container, status)) is not None:
            return trouble
    return None


def describe_containers(pod: Pod) -> str:
    """Say of each container that does not serve what it waits for, how it ended, how often it restarted and which probe it lacks."""
    if pod.status.container_statuses is None and pod.status.init_container_statuses is None:
        return ""
    sentences = []
    for container in (*pod.spec.containers, *(pod.spec.init_containers or ())):
        status = container_status(pod, container.name)
        if status is None:
            continue
        trouble, probe = _trouble(container, status), _waited_probe(container, status)
        words = [text for text in (trouble.message if trouble else "", probe) if text]
        if words and status.restart_count:
            words.append(f"restarted {status.restart_count} time{'s' * (status.restart_count > 1)}")
        sentences += [", ".join(words)] * bool(words)
    return "; ".join(sentences)


def _trouble(container: Container, status: ContainerStatus) -> Trouble | None:
    waiting = status.state.waiting if status.state is not None else None
    ended = next(
        (state.terminated for state in (status.state, status.last_state) if state is not None and state.terminated),
        None,
    )
    reason, parts = "", []
    if waiting is not None and waiting.reason in _PULLING:
        # The kubelet says one and the other in turn.
        reason = "ImagePullBackOff"
        parts.append(f"waits: {reason} of {container.image}")
    elif waiting is not None and waiting.reason not in _STARTING:
        reason = waiting.reason
        # Other messages are of the moment: they have times and identifiers.
        detail = f" ({waiting.message[:_LONGEST]})" if reason == _CONFIGURATION and waiting.message else ""
        parts.append(f"waits: {reason}{detail}")
    if ended is not None and ended.exit_code:
        reason = reason or ended.reason or "Error"
        parts.append(f"ended with exit code {ended.exit_code}{f' ({ended.reason})' if ended.reason else ''}")
    return Trouble(reason, f"container {container.name} {', '.join(parts)}") if parts else None


def _waited_probe(container: Container, status: ContainerStatus) -> str:
    if status.ready or status.state is None or status.state.running is None:
        return ""
    if container.startup_probe is not None and not status.started:
        return f"container {container.name} runs, and its startup probe has not passed yet"
    if container.readiness_probe is not None:
        return f"container {container.name} runs, and its readiness probe does not pass"
    return ""


def seconds_until_running(status: ContainerStatus, began: str | None) -> float | None:
    """Seconds from when the kubelet took a pod until a container of it that runs began, both by the kubelet's clock.

    None where that is not known.
    """
    since = status.state.running.started_at if status.state is not None and status.state.running is not None else None
    if since is None or began is None:
        return None
    times = seconds(since), seconds(began)
    return times[0] - times[1] if times[0] is not None and times[1] is not None else None


def _tells(container: Container, status: ContainerStatus | None, began: str | None) -> bool:
    return status is not None and (
        status.restart_count > 0
        or (seconds_until_running(status, began) or 0.0) > _LATE
        or _trouble(container, status) is not None
        or bool(_waited_probe(container, status))
        or _is_resizing(container, status)
    )


def _is_resizing(container: Container, status: ContainerStatus) -> bool:
    wanted = (container.resources.requests if container.resources else None) or {}
    running = status.resources.requests if status.resources else None
    return any(amounts is not None and amounts != wanted for amounts in (running, status.allocated_resources))


def gates(pod: Pod) -> frozenset[str]:
    """The names of the scheduling gates that still hold a pod."""
    return frozenset(gate.name for gate in pod.spec.scheduling_gates or ())


def pinned_node(pod: Pod) -> str | None:
    """The one node that a pod's required node affinity names by ``metadata.name``, if it does.

    A pin stands in every term (terms are OR-ed): one term without it, or two that disagree, is no pin. An empty term
    matches nothing, so it takes nothing from a pin.
    """
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity and affinity.node_affinity else None
    if required is None:
        return None
    nodes: set[str | None] = set()
    for term in required.node_selector_terms:
        if not term.match_expressions and not term.match_fields:
            continue
        named = {
            value
            for field in term.match_fields or ()
            if field.key == "metadata.name" and field.operator == "In" and len(field.values or ()) == 1
            for value in field.values or ()
        }
        nodes.add(named.pop() if len(named) == 1 else None)
    return nodes.pop() if len(nodes) == 1 else None


def is_terminal(pod: Pod) -> bool:
    """A pod that has ended holds no capacity any more."""
    return pod.status.phase in ("Succeeded", "Failed")

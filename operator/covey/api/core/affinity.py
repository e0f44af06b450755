"""The constraints of a pod on its node."""

from __future__ import annotations

import msgspec

from covey.api.core.meta import Read


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
    """``TopologySpreadConstraint``; Covey does not model it, it only says so."""

    when_unsatisfiable: str = "DoNotSchedule"

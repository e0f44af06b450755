"""Notices of nodes: whether a node is to be empty, and which pods have to leave it.

=============================================  ==========================================================================
a node has                                     its replicas leave
=============================================  ==========================================================================
a cordon                                       at once, whatever they tolerate; without room for a successor only after
                                               ``spec.disruption.evacuateAfterSeconds``: it may be taken back
a cordon and ``covey.dev/drain`` (an           at once, whatever they tolerate
annotation that ``kubectl covey drain`` sets)
a taint NoSchedule of a listed key             at once
(``evacuations``) that a pod does not tolerate
any other taint NoSchedule                     never: Kubernetes lets stay who runs, and agents of networks, volumes and
                                               drivers set such taints around their own restarts
a taint NoExecute that a pod tolerates for a   at once: it goes when the time is over. Who does not tolerate it at all
time                                           has been deleted already, which is a failure and no evacuation
a taint of an autoscaler that deletes it       at once, whatever they tolerate
(``AUTOSCALERS``, NoSchedule or NoExecute)
such a taint PreferNoSchedule                  after ``spec.disruption.evacuateAfterSeconds``: it may be taken back
a taint of the node's condition                never: ``node.kubernetes.io/…`` (not ready, unreachable, under pressure)
                                               and ``node.cloudprovider.kubernetes.io/…`` pass, or are a loss
=============================================  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from covey.api import constants as names
from covey.api import core
from covey.placement.cluster.node_filters import tolerates

#: Keys of the taints by which autoscalers say that a node is about to be deleted, or may be.
AUTOSCALERS: Final = (
    "ToBeDeletedByClusterAutoscaler",
    "DeletionCandidateOfClusterAutoscaler",
    "karpenter.sh/disrupted",
)
#: Taints that Kubernetes itself sets from what a node's conditions say.
_CONDITIONS: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_CORDONED: Final = "cordoned"
_UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
_DRAINED: Final = "to be drained"
#: Set by a person, or by a controller that knows the node is off.
_OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"


@dataclass(frozen=True, slots=True)
class Notice:
    """Reasons for which a node is to be empty.

    ``certain`` says why everybody has to leave it, empty where it does not; ``taints`` are those that a pod may
    tolerate. ``candidate`` is the key of an autoscaler's soft taint. With ``waits`` no pod that serves goes without a
    successor for a while. Both are so since ``since`` (seconds since the epoch; None where the node does not say so).
    """

    certain: str = ""
    taints: tuple[core.Taint, ...] = ()
    candidate: str = ""
    since: float | None = None
    waits: bool = False

    def drives(self, pod: core.Pod) -> str:
        """Reason for which this pod has to leave the node at once; empty where it does not."""
        return self.certain or next((_taint_text(taint) for taint in self.taints if _is_driven(pod, taint)), "")

    def waits_with(self, pod: core.Pod) -> bool:
        """Tell whether a pod is to go without a successor only after a while."""
        return self.waits and not any(_is_driven(pod, taint) for taint in self.taints)


def notice_of(
    node: core.Node, autoscalers: Collection[str] = AUTOSCALERS, evacuations: Collection[str] = ()
) -> Notice | None:
    """Read why a node is to be empty; None where it need not be.

    Args:
        node: a node.
        autoscalers: keys of the taints by which autoscalers announce that they delete a node.
        evacuations: keys of the other taints ``NoSchedule`` that replicas leave a node for.
    """
    taints: list[core.Taint] = []
    candidate: core.Taint | None = None
    cordon: core.Taint | None = None
    for taint in node.spec.taints or ():
        if taint.effect == "PreferNoSchedule":
            candidate = taint if taint.key in autoscalers else candidate
        elif taint.key in autoscalers:
            return Notice(_taint_text(taint))
        elif taint.key == _UNSCHEDULABLE:
            cordon = taint
        elif taint.key in evacuations or (taint.effect == "NoExecute" and not taint.key.startswith(_CONDITIONS)):
            taints.append(taint)
    if node.spec.unschedulable and is_to_be_drained(node):
        return Notice(_DRAINED)
    if node.spec.unschedulable:
        return Notice(_CORDONED, tuple(taints), since=_since(cordon), waits=True)
    if not taints and candidate is None:
        return None
    return Notice("", tuple(taints), candidate.key if candidate else "", _since(candidate))


def is_to_be_drained(node: core.Node) -> bool:
    """Tell whether somebody has asked for the node to be empty at once, which counts where it is cordoned."""
    return node.metadata.annotation(names.ANNOTATION_DRAIN) is not None


def is_out_of_service(node: core.Node) -> bool:
    """Tell whether somebody has said that the node is off for good."""
    return any(taint.key == _OUT_OF_SERVICE for taint in node.spec.taints or ())


def _is_driven(pod: core.Pod, taint: core.Taint) -> bool:
    """Tell whether a taint makes this pod leave: NoExecute that it tolerates for a time, another not tolerated."""
    tolerations = [toleration for toleration in pod.spec.tolerations or () if tolerates(toleration, taint)]
    if taint.effect == "NoExecute":
        return bool(tolerations) and all(toleration.toleration_seconds is not None for toleration in tolerations)
    return not tolerations


def _taint_text(taint: core.Taint) -> str:
    return f"taint {taint.key}:{taint.effect}"


def _since(taint: core.Taint | None) -> float | None:
    """Time at which a taint was added: cluster-autoscaler writes it into the value, others into ``timeAdded``."""
    if taint is None:
        return None
    return float(taint.value) if taint.value.isdecimal() else core.seconds(taint.time_added)

"""Pods on nodes that will not come back: they are deleted at once, for nobody there will ever end them.

A node is lost when somebody says so (the taint ``node.kubernetes.io/out-of-service``) or when it was deleted. One that
is only not ready or unreachable may come back: there the pods' own ``tolerationSeconds`` count, by which Kubernetes
deletes them. A pod that is being deleted counts as lost, however long the API server keeps it: its replica is made
again at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from covey.api import core
from covey.model import podstate
from covey.operator.model.actions import Actions, DeletePod, Note
from covey.operator.model.node_drain import is_out_of_service
from covey.operator.model.observed import Observed
from covey.operator.model.outcome import Outcome


def find_stranded(observed: Observed) -> Outcome:
    """The pods of a resource on lost nodes that nobody has deleted yet."""
    suspect = {name for name, node in observed.nodes.items() if is_out_of_service(node)} | observed.gone.keys()
    stranded = tuple(
        DeletePod(pod, "its node is lost")
        for pod in (observed.every_pod() if suspect else ())
        if pod.spec.node_name in suspect and not podstate.is_dead(pod)
        if _is_lost(pod, observed)
    )
    return Outcome(Actions(delete_pods=stranded, notes=tuple(_notes(stranded))))


def _is_lost(pod: core.Pod, observed: Observed) -> bool:
    name = pod.spec.node_name or ""
    node = observed.nodes.get(name)
    if node is not None:
        return is_out_of_service(node)
    deleted = observed.gone.get(name)
    # A younger pod is on a node of the same name that came after.
    return deleted is not None and (core.seconds(pod.metadata.creation_timestamp) or deleted) < deleted


def _notes(stranded: Iterable[DeletePod]) -> Iterator[Note]:
    """The Event about lost nodes: one for all of them."""
    nodes = sorted({deletion.pod.spec.node_name or "" for deletion in stranded})
    if nodes:
        named = ", ".join(nodes[:5]) + (f" and {len(nodes) - 5} more" if len(nodes) > 5 else "")
        what = "node" if len(nodes) == 1 else "nodes"
        yield Note(
            "NodeLost", f"{what} {named} lost: the replicas with pods there are made anew", "Replace", warning=True
        )

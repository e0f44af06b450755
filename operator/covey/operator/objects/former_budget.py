"""From the budget that a former release made for each resource to the one of the namespace.

Each pod is selected by one of them, never by both, at any moment, so the steps stand on what is stored and not on what
was asked for:

1. The namespace has its budget. Until then the former one stays as it is.
2. The former budget leaves alone the pods that have the label.
3. Pods get the label, few at a time: each goes from one budget to the other with one write. New pods are born with it.
4. No live pod lacks the label: the former budget is wanted no more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from covey.api import constants as names
from covey.api import core
from covey.api.inference import DisaggregatedInferenceSpec
from covey.backends import Owned
from covey.compile import ReplicaKey, Tree, pod_budget
from covey.compile.groups import CreationLevel
from covey.kube.resources import POD_DISRUPTION_BUDGETS
from covey.model import podstate
from covey.operator.model.actions import Relabel
from covey.operator.model.observed import SHARED_BUDGET, Observed


def with_former_budget(tree: Tree, spec: DisaggregatedInferenceSpec, observed: Observed) -> Tree:
    """The tree with the budget of a former release, as long as pods need it.

    It comes before the namespace's, which may select some of its pods already: a former release has been back. Pods are
    made without the label as long as they would have both.
    """
    former = _former(tree, observed)
    if former is None:
        return tree
    if not pod_budget.is_narrow(former.spec):
        tree = replace(tree, pods=tree.pods.without_protection())
    if not pod_budget.needs_budget(spec):
        return tree
    roles = pod_budget.gang_roles(spec)
    pods = [
        pod
        for pod in observed.every_pod()
        if not podstate.is_dead(pod) and pod.metadata.label(names.LABEL_ROLE) in roles
    ]
    is_shared = SHARED_BUDGET in observed.shared
    if is_shared and all(map(_is_protected, pods)):
        return tree
    narrow = is_shared or any(map(_is_protected, pods))
    level = CreationLevel("former budget", (pod_budget.former_budget(tree.owner, roles, narrow=narrow),))
    return replace(tree, levels=(level, *tree.levels))


def find_unprotected(
    tree: Tree, observed: Observed, going: Collection[str], idle: Collection[ReplicaKey] = ()
) -> Iterator[Relabel]:
    """Find pods that stay and whose label for the namespace's budget is missing, wrong or superfluous.

    Args:
        tree: what is wanted.
        observed: the snapshot.
        going: UIDs of pods that do not stay.
        idle: replicas (unit, role, number) whose pods may be evicted.
    """
    former = _former(tree, observed)
    if former is not None and not pod_budget.is_narrow(former.spec):
        return
    may_have_it = former is None or SHARED_BUDGET in observed.shared
    for slot in tree.slots:
        pod = observed.current.get(slot)
        if pod is None or pod.metadata.uid in going:
            continue
        protection = tree.pods.protection(slot)
        if protection and (slot.unit, slot.role, slot.replica) in idle:
            protection = pod_budget.IDLE
        wanted = protection.get(names.LABEL_GANG)
        if pod.metadata.label(names.LABEL_GANG) != wanted and (may_have_it or wanted is None):
            yield Relabel(pod, {names.LABEL_GANG: wanted})


def _former(tree: Tree, observed: Observed) -> Owned | None:
    return observed.objects.get((POD_DISRUPTION_BUDGETS.type, pod_budget.former_name(tree.owner.name)))


def _is_protected(pod: core.Pod) -> bool:
    return pod.metadata.label(names.LABEL_GANG) is not None

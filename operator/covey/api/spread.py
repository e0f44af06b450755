"""Required spread of pods over a node label (``topologySpreadConstraints`` with ``DoNotSchedule``): which one is kept.

kube-scheduler compares the domains of the nodes that a pod's own affinity leaves (``nodeAffinityPolicy: Honor``, the
default). Of a pod that Covey has pinned that is one node, so the planner keeps such a constraint, or nobody does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from covey.api import core


def is_switched_off(spread: core.TopologySpread) -> bool:
    """Tell whether a constraint is a required one that a pin switches off."""
    return spread.when_unsatisfiable == "DoNotSchedule" and spread.node_affinity_policy != "Ignore"


def find_kept_spread(
    spreads: Sequence[core.TopologySpread], labels: Mapping[str, str] | None
) -> core.TopologySpread | None:
    """Find the constraint that the planner keeps for a pod: the only one that a pin switches off, if it selects the pod itself.

    With ``minDomains`` kube-scheduler refuses pins; ``matchLabelKeys`` selects others after each rollout.

    Args:
        spreads: all constraints of the pod.
        labels: of the pod.
    """
    switched_off = [spread for spread in spreads if is_switched_off(spread)]
    if len(switched_off) != 1:
        return None
    (spread,) = switched_off
    selector = spread.label_selector
    if selector is None or not (selector.match_labels or selector.match_expressions):
        return None
    if (spread.min_domains or 1) > 1 or spread.match_label_keys or spread.max_skew < 1 or not spread.topology_key:
        return None
    return spread if core.selects(selector, labels) else None

"""Levels of a topology that groups were made for, kept while the owner asks for nothing else.

Native groups have the label keys of their levels in fields that the API server lets nobody change. Were the keys read
again in each pass, an edit of one ClusterTopology would take down every unit of the cluster.
"""

from __future__ import annotations

from covey.api.inference import DisaggregatedInferenceSpec
from covey.compile.groups import Levels
from covey.operator.model.accepted import Accepted, Resolved


def is_topology_kept(spec: DisaggregatedInferenceSpec, last: Accepted) -> bool:
    """Tell whether the owner asks for the same places as when the groups were made."""
    return _placement(spec) == _placement(last.spec)


def describe_change(recorded: Resolved, topology: str | None, levels: Levels | None) -> str:
    """Describe how a topology differs from the recorded one; empty where it does not, or no keys were recorded."""
    before = recorded.levels
    if recorded.topology is None or not before or not any(before.values()):
        return ""
    if levels is None:
        return f"topology {recorded.topology} cannot be chosen any more"
    if topology != recorded.topology:
        return f"topology {topology} would be chosen instead of {recorded.topology}"
    changed = [name for name in (*before, *levels) if before.get(name) != levels.get(name)]
    if changed:
        return f"topology {topology} has changed in level {', '.join(dict.fromkeys(changed))}"
    return "" if list(before) == list(levels) else f"topology {topology} has its levels in another order"


def _placement(spec: DisaggregatedInferenceSpec) -> object:
    return spec.topology, {role.name: role.topology for role in spec.roles}, spec.proximity

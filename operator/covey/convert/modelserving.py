"""ModelServing of Kthena (``workload.serving.volcano.sh/v1alpha1``): a ServingGroup is a unit.

Without a gang policy every replica is part of the minimum there, and a role that the policy does not name as well
(``PodGroupManager``); so it is here.
"""

from __future__ import annotations

from typing import Final

from covey.convert.draft import Draft, Object
from covey.convert.fields import Fields
from covey.convert.leaderworkerset import budgets
from covey.convert.replica_template import ReplicaTemplate, leader_and_workers
from covey.convert.templates import remark_on, template_of, with_variables

GROUP: Final = "workload.serving.volcano.sh"
_RECOVERIES: Final = {"RoleRecreate": "RecreateReplica", "ServingGroupRecreate": "RecreateUnit", "None": "None"}
_VARIABLES: Final = {
    "ENTRY_ADDRESS": "$(COVEY_LEADER_ADDRESS)",
    "GROUP_SIZE": "$(COVEY_SIZE)",
    "WORKER_INDEX": "$(COVEY_INDEX)",
}


def convert(document: Fields, draft: Draft) -> None:
    """Convert a ModelServing."""
    draft.take_metadata(document)
    spec = document.child("spec")
    if scheduler := spec.text("schedulerName"):
        draft.remark(spec.at("schedulerName"), f"{scheduler} does not place these pods any more: Covey does")
    draft.spec["replicas"] = spec.number("replicas", 1)
    group = spec.child("template")
    group.settle("restartGracePeriodSeconds", 0)
    topology = group.child("networkTopology")
    if whole := _tier(topology.child("groupPolicy"), draft):
        draft.spec["topology"] = whole
    each_role = _tier(topology.child("rolePolicy"), draft)
    minimums = group.child("gangPolicy").child("minRoleReplicas")
    rollout = spec.child("rolloutStrategy")
    by_role = rollout.meaning("type", {"RoleRollingUpdate": "role"})
    rollout.settle("type", "ServingGroupRollingUpdate")
    recovery = spec.meaning("recoveryPolicy", _RECOVERIES)
    for source in group.each("roles"):
        role = _role(source, minimums, each_role, draft)
        if by_role:
            budgets(source, role, draft)
        if recovery == "RecreateUnit" or (recovery and role["size"] > 1):
            draft.wish(spec.at("recoveryPolicy"), role, "restart.policy", recovery)


def _role(source: Fields, minimums: Fields, topology: Object, draft: Draft) -> Object:
    name = source.text("name")
    replicas = source.number("replicas", 1)
    minimum = minimums.number(name, replicas)
    return draft.add_role(
        source.at("name"),
        name,
        replicas=replicas,
        minReplicas=min(minimum, replicas),
        topology=dict(topology) or None,
        **_replica(source, draft).fields(),
    )


def _replica(source: Fields, draft: Draft) -> ReplicaTemplate:
    workers = source.number("workerReplicas", 0)
    entry = with_variables(template_of(source.child("entryTemplate"), draft), _VARIABLES)
    if not workers:
        if source.take("workerTemplate") is not None:
            draft.remark(source.at("workerTemplate"), "is not used, as workerReplicas is 0; left out")
        return ReplicaTemplate(1, entry)
    worker = with_variables(template_of(source.child("workerTemplate"), draft), _VARIABLES)
    for key, template in (("entryTemplate", entry), ("workerTemplate", worker)):
        labels = r"modelserving\.volcano\.sh/[a-z-]+"
        remark_on(draft, template, source.at(key), labels, "is not set by Covey", "covey.dev labels say the same")
    return leader_and_workers(1 + workers, entry, worker)


def _tier(source: Fields, draft: Draft) -> dict[str, str]:
    """A tier of HyperNodes as a role's or a unit's topology: a level has its name, or it is no level.

    ``mode`` is hard where nothing is said, as in Volcano.
    """
    number, name = source.at("highestTierAllowed"), source.at("highestTierName")
    level = source.text("highestTierName")
    if level in draft.levels.names:
        return {"preferred" if source.text("mode") == "soft" else "required": level}
    for path, tier in ((name, level), (number, source.take("highestTierAllowed"))):
        if tier or tier == 0:
            source.take("mode")
            what = f"tier {tier} of HyperNodes is no level of a ClusterTopology; the constraint is left out"
            draft.remark(path, what, "set topology.required or topology.preferred")
    return {}

"""LeaderWorkerSet (``leaderworkerset.x-k8s.io/v1``): one role, whose replicas are the groups.

With an exclusive topology each group is a unit instead: units are what Covey keeps apart.
"""

from __future__ import annotations

import re
from typing import Final

from covey.api.constants import LWS_LABELS
from covey.convert.draft import Draft, Object
from covey.convert.fields import ConversionError, Fields
from covey.convert.replica_template import ReplicaTemplate, leader_and_workers
from covey.convert.templates import Template, items, name_of, remark_on, template_of

GROUP: Final = "leaderworkerset.x-k8s.io"
_PREFIX: Final = "leaderworkerset.sigs.k8s.io/"
EXCLUSIVE: Final = f"{_PREFIX}exclusive-topology"
_QUEUE: Final = "scheduling.volcano.sh/queue-name"
_ROLE: Final = "engine"
_RESTARTS: Final = {
    "RecreateGroupOnPodRestart": "RecreateReplica",
    "RecreateGroupAfterStart": "RecreateReplicaAfterStart",
    "None": "None",
    "Default": "None",
}
_STARTUPS: Final = {"LeaderCreated": "Parallel", "LeaderReady": "LeaderReady"}
_SUBDOMAINS: Final = {"Shared": "Shared", "UniquePerReplica": "UniquePerReplica"}
#: Labels that Covey sets on request, and the names that it never sets.
_LABELS: Final = rf"(?:{'|'.join(map(re.escape, LWS_LABELS))})(?![a-z-])"
_OTHERS: Final = rf"(?!{_LABELS}){re.escape(_PREFIX)}[a-z-]+"
_ASK: Final = (
    "set spec.compat.lwsLabels to Always, unless LeaderWorkerSet is installed as well, or use covey.dev labels"
)


def convert(document: Fields, draft: Draft) -> None:
    """Convert a LeaderWorkerSet."""
    annotations = draft.take_metadata(document)
    spec = document.child("spec")
    replicas = spec.number("replicas", 1)
    if queue := annotations.text(_QUEUE):
        draft.wish(annotations.at(_QUEUE), None, "queue", queue)
    level = exclusive_level(annotations, draft)
    if level:
        draft.spec.update(replicas=replicas, topology={"required": level}, spread=spread_units(level))
        replicas = 1
        draft.remark(annotations.at(EXCLUSIVE), *ONLY_OWN)
    role = draft.add_role("spec", _ROLE, **counts(replicas), **replica(spec, draft).fields())
    behaviour(spec, role, draft)
    if level:  # what an update may take of a role's replicas says nothing of units
        spec.child("rolloutStrategy").settle("type", "RollingUpdate")
    else:
        rollout(spec, role, draft)


#: What an exclusive domain becomes, as a remark: what, and what to do.
ONLY_OWN: Final = (
    "Covey keeps the units of one resource apart; pods of others may still lie in the domain",
    "taint the nodes if they must not",
)


def spread_units(level: str) -> Object:
    """One unit for each domain of a level."""
    return {"level": level, "mode": "Required", "maxPerDomain": 1}


def counts(replicas: int, minimum: int = 1) -> Object:
    """Return the fields of a role for its number of replicas and its minimum."""
    return {"replicas": replicas, "minReplicas": min(minimum, replicas)}


def exclusive_level(annotations: Fields, draft: Draft) -> str | None:
    """The level of the node label that the annotation for exclusive placement names."""
    key = annotations.text(EXCLUSIVE)
    return draft.level_of(annotations.at(EXCLUSIVE), key) if key else None


def replica(spec: Fields, draft: Draft) -> ReplicaTemplate:
    """Convert one group to a replica."""
    source = spec.child("leaderWorkerTemplate")
    claims = source.each("volumeClaimTemplates")
    leader = template_of(source.child("leaderTemplate"), draft) if "leaderTemplate" in source else None
    worker = template_of(source.child("workerTemplate"), draft)
    for path, template in ((source.at("leaderTemplate"), leader), (source.at("workerTemplate"), worker)):
        if template:
            instead = "COVEY_* variables and covey.dev labels say the same"
            remark_on(draft, template, path, _LABELS, "is set by Covey on request only", _ASK)
            remark_on(draft, template, path, _OTHERS, "is not set by Covey", instead)
            remark_on(draft, template, path, r"\bTPU_[A-Z_]+\b", "is not set by Covey", "set it in the template")
    volumes = [_volume(claim, draft) for claim in claims]
    leader = _with_volumes(leader, volumes) if leader else None
    return leader_and_workers(source.number("size", 1), leader, _with_volumes(worker, volumes))


def _volume(claim: Fields, draft: Draft) -> Object:
    """A claim that StatefulSet keeps becomes one that lives as long as its pod."""
    claim.take("apiVersion")
    claim.take("kind")
    claim.take("status")
    metadata = claim.child("metadata")
    metadata.take("creationTimestamp")
    name = metadata.text("name")
    if not name:
        raise ConversionError(metadata.at("name"), "is missing", "give the claim a name, by which pods mount it")
    kept = {key: metadata.strings(key) for key in ("labels", "annotations") if key in metadata}
    what = "becomes an ephemeral volume, which goes with its pod"
    draft.remark(claim.path, what, "create the claims yourself where the data has to stay")
    template = {**({"metadata": kept} if kept else {}), "spec": claim.take("spec")}
    return {"name": name, "ephemeral": {"volumeClaimTemplate": template}}


def _with_volumes(template: Template, volumes: list[Object]) -> Template:
    """A claim takes precedence over a volume of the same name, as LeaderWorkerSet has it."""
    if not volumes:
        return template
    names = {volume["name"] for volume in volumes}
    own = [volume for volume in items(template["spec"], "volumes") if name_of(volume) not in names]
    return {**template, "spec": {**template["spec"], "volumes": [*own, *volumes]}}


def behaviour(spec: Fields, role: Object, draft: Draft) -> None:
    """Convert the fields for a group's start, its restart and the names of its pods."""
    template = spec.child("leaderWorkerTemplate")
    for source, key, meanings, keys in (
        (template, "restartPolicy", _RESTARTS, "restart.policy"),
        (spec, "startupPolicy", _STARTUPS, "startup"),
        (spec.child("networkConfig"), "subdomainPolicy", _SUBDOMAINS, "network.subdomain"),
    ):
        if meaning := source.meaning(key, meanings):
            draft.wish(source.at(key), role, keys, meaning)


def rollout(spec: Fields, role: Object, draft: Draft) -> None:
    """Convert the fields for the update of a role's replicas."""
    source = spec.child("rolloutStrategy")
    source.settle("type", "RollingUpdate")
    budgets(source.child("rollingUpdateConfiguration"), role, draft)


def budgets(source: Fields, role: Object, draft: Draft) -> None:
    """Convert what an update may add and take away, and where it stops."""
    source.settle("partition", 0)
    for key in ("maxSurge", "maxUnavailable", "partition"):
        if key in source.rest():
            draft.wish(source.at(key), role, f"update.{key}", source.take(key))

"""What must hold when everything has been put right and left alone: all that is wanted runs, and nothing else is there.

Pure: each takes what the API server lists and says what is amiss, nothing when all is well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from soak.facts import GANG_GATE, KIND, Json, Node, Owner, Pod, Resource, by_replica, read_node, read_pod, read_resource

#: Lists of all that Covey makes, beside the pods.
OBJECTS: Final[Mapping[str, str]] = {
    "Workload": "/apis/scheduling.covey.dev/v1alpha1/workloads",
    "CompositePodGroup": "/apis/scheduling.covey.dev/v1alpha1/compositepodgroups",
    "PodGroup": "/apis/scheduling.covey.dev/v1alpha1/podgroups",
    "Service": "/api/v1/services",
    "ControllerRevision": "/apis/apps/v1/controllerrevisions",
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
    "RoleScaler": "/apis/inference.covey.dev/v1alpha1/rolescalers",
}
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/covey-system/leases"
#: Those of Covey's processes, and the seconds within which each is renewed several times.
_LED: Final = ("covey-operator", "covey-planner")
_RENEWED: Final = 6.0
#: Whoever did not do what he should: kube-controller-manager, and the kubelet that kwok plays.
ORPHAN: Final = "of a resource that is gone"
UNSTARTED: Final = "is not started"
#: Revisions of one resource: ``historyLimit`` of other contents, the one in force, and those that some pod is of.
_MOST_REVISIONS: Final = 13
#: Reasons with which a resource may say that a gang, or a part of its surplus, has no place.
_HONEST: Final = frozenset({"Infeasible", "SearchLimit", "PartiallyAdmitted", "Waiting", "OverQuota"})
_SURPLUS: Final = "SurplusWaiting"


@dataclass(frozen=True)
class Listed:
    """What the API server lists at one time, more or less."""

    resources: Mapping[Owner, Resource]
    pods: Sequence[Pod]
    #: By kind.
    objects: Mapping[str, Sequence[Json]] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        resources: Sequence[Json],
        pods: Sequence[Json],
        objects: Mapping[str, Sequence[Json]],
        nodes: Sequence[Json] = (),
    ) -> Listed:
        """From JSON."""
        found = [read_resource(each) for each in resources]
        read = [read_node(each) for each in nodes]
        return cls(
            {each.owner: each for each in found}, [read_pod(each) for each in pods], objects, {n.name: n for n in read}
        )

    def totals(self, uid: str) -> dict[str, int]:
        """What RoleScalers ask for, by role."""
        return {
            each["metadata"]["labels"]["covey.dev/role"]: each["spec"]["replicas"]
            for each in self.objects.get("RoleScaler", ())
            if any(owner["uid"] == uid for owner in each["metadata"].get("ownerReferences") or ())
        }


def unsettled(listed: Listed, *, waiting: Collection[Owner] = ()) -> list[str]:
    """What does not run as it is wanted; resources in ``waiting`` may lack pods that have no place, if they say so."""
    found: list[str] = []
    for owner, resource in sorted(listed.resources.items()):
        pods = [pod for pod in listed.pods if pod.owner_uid == resource.uid]
        found += (
            f"{owner.namespace}/{owner.name}: {each}"
            for each in _amiss(resource, pods, listed.totals(resource.uid), waits=owner in waiting)
        )
    return found


def waits_honestly(resource: Resource, pods: Sequence[Pod]) -> bool:
    """Some pods wait behind the gate, and the resource says that there is no place for them."""
    told = {reason for kind, (_, reason, _) in resource.conditions.items() if kind in {"Admitted", "Progressing"}}
    held = any(GANG_GATE in pod.gates for pod in pods if pod.live)
    says = bool(told & (_HONEST | {_SURPLUS})) or resource.gate == "Nodes"
    return held and resource.observed == resource.generation and says


def _amiss(resource: Resource, pods: Sequence[Pod], totals: Mapping[str, int], *, waits: bool) -> Iterator[str]:
    wanted = resource.wanted
    if resource.observed != resource.generation:
        yield f"generation {resource.generation} is not observed, but {resource.observed}"
    yield from (f"pod {pod.name} has ended or is going" for pod in pods if not pod.live)
    live = [pod for pod in pods if pod.live]
    least = most = wanted.pods(totals)
    if wanted.paused or (waits and resource.gate == "Nodes"):
        # Between two revisions the surge stays, and so does one that waits for room.
        most += wanted.units * sum(part.surge * part.size for part in wanted.parts.values())
    if not least <= len(live) <= most:
        yield f"{len(live)} pods of {least}"
    places = Counter((pod.replica, pod.index) for pod in live)
    yield from (f"{count} pods in one place of {place}" for place, count in places.items() if count > 1)
    if waits and waits_honestly(resource, live):
        for replica, members in by_replica(iter(live)).items():
            if any(pod.node for pod in members) and not all(pod.node for pod in members):
                yield f"{replica} waits with a part of its pods bound"
        return
    yield from (f"pod {pod.name} is not bound, gates {sorted(pod.gates)}" for pod in live if not pod.node)
    yield from (_unready(pod) for pod in live if pod.node and not pod.ready)
    if wanted.paused or wanted.suspended:
        return
    for role, part in wanted.parts.items():
        revisions = {pod.labels.get("covey.dev/revision") for pod in live if pod.labels.get("covey.dev/role") == role}
        if len(revisions) > 1 and not any(each.partition for each in wanted.parts.values()):
            yield f"{role} has pods of {len(revisions)} revisions"
        sizes = {pod.size for pod in live if pod.labels.get("covey.dev/role") == role}
        if sizes - {part.size} and not any(each.partition for each in wanted.parts.values()):
            yield f"{role} has replicas of {sorted(sizes)} pods, not {part.size}"
    for kind, expected in (("Admitted", "True"), ("Scheduled", "True"), ("Available", "True"), ("Progressing", "True")):
        status, reason, message = resource.conditions.get(kind, ("", "", "there is no such condition"))
        if status != expected or (kind == "Progressing" and reason != "Complete"):
            yield f"{kind} is {status}, {reason}: {message}"


def _unready(pod: Pod) -> str:
    if pod.phase == "Pending":
        return f"pod {pod.name} {UNSTARTED} on {pod.node}"
    return f"pod {pod.name} is not Ready ({pod.phase} on {pod.node})"


def leaks(listed: Listed) -> list[str]:
    """Objects whose resource is gone, and groups of replicas and units that are not there."""
    uids = {resource.uid: resource for resource in listed.resources.values()}
    replicas = {(pod.owner_uid, *_numbers(pod.labels)) for pod in listed.pods if pod.live}
    units = {(uid, unit) for uid, unit, _, _ in replicas}
    found = [f"pod {pod.name} {ORPHAN}" for pod in listed.pods if _orphaned(pod.owner_uid, uids)]
    revisions: Counter[str] = Counter()
    for kind, items in listed.objects.items():
        for item in items:
            metadata = item["metadata"]
            name, labels = f"{kind} {metadata['namespace']}/{metadata['name']}", metadata.get("labels") or {}
            uid = next((each["uid"] for each in metadata.get("ownerReferences") or () if each["kind"] == KIND), "")
            if _orphaned(uid, uids):
                found.append(f"{name} {ORPHAN}")
            if not uid or uid not in uids:
                continue
            revisions[uid] += kind == "ControllerRevision"
            if kind == "ControllerRevision" or uids[uid].wanted.suspended or not uids[uid].wanted.units:
                continue
            unit, role, replica = _numbers(labels)
            if unit is not None and (uid, unit) not in units:
                found.append(f"{name} of a unit that is not there")
            elif replica is not None and (uid, unit, role, replica) not in replicas:
                found.append(f"{name} of a replica that is not there")
    found += [
        f"{count} ControllerRevisions of {uids[uid].owner}"
        for uid, count in revisions.items()
        if count > _MOST_REVISIONS
    ]
    needed = {owner.namespace for owner, each in listed.resources.items() if _is_gang(each) or each.wanted.broken}
    found += [f"the budget of {each}, where nobody needs it" for each in sorted(_budgets(listed) - needed)]
    return found


def unled(leases: Iterable[Json], now: float) -> list[str]:
    """Leases that nobody renews: a process that ended without giving its lease back leaves nobody to lead for a while.

    Args:
        leases: as listed.
        now: seconds since the epoch.
    """
    renewed = {each["metadata"]["name"]: each["spec"].get("renewTime") for each in leases}
    times = {name: datetime.fromisoformat(each).timestamp() for name, each in renewed.items() if each}
    return [f"nobody renews the lease {name}" for name in _LED if now - times.get(name, 0.0) > _RENEWED]


def unreachable(listed: Listed) -> list[str]:
    """Pods whose Service is not there, so that nobody finds them by their names."""
    services = {
        (item["metadata"]["namespace"], item["metadata"]["name"], each["uid"])
        for item in listed.objects.get("Service", ())
        for each in item["metadata"].get("ownerReferences") or ()
    }
    return [
        f"pod {pod.name} has no Service {pod.subdomain}"
        for pod in listed.pods
        if pod.live and pod.replica and pod.subdomain and (pod.namespace, pod.subdomain, pod.owner_uid) not in services
    ]


def unprotected(listed: Listed) -> list[str]:
    """Namespaces without their budget, and pods of gangs that it does not select."""
    needed = {owner.namespace for owner, each in listed.resources.items() if _is_gang(each) and not each.wanted.broken}
    found = [f"{each} has no budget" for each in sorted(needed - _budgets(listed))]
    for resource in listed.resources.values():
        for pod in listed.pods if not resource.wanted.broken else ():
            part = resource.wanted.parts.get(pod.labels.get("covey.dev/role", ""))
            ours = pod.owner_uid == resource.uid and pod.live and part is not None
            if ours and part is not None and pod.labels.get("covey.dev/gang") != ("true" if part.minimum else None):
                found.append(f"pod {pod.name} and its label of the budget")
    return found


def _is_gang(resource: Resource) -> bool:
    """Its pods must not be evicted."""
    return not resource.wanted.suspended and any(part.minimum for part in resource.wanted.parts.values())


def _budgets(listed: Listed) -> set[str]:
    """The namespaces that have Covey's budget."""
    budgets = (each["metadata"] for each in listed.objects.get("PodDisruptionBudget", ()))
    return {each["namespace"] for each in budgets if each["name"] == "covey-gangs"}


def _orphaned(uid: str, uids: Mapping[str, Any]) -> bool:
    return bool(uid) and uid not in uids


def _numbers(labels: Mapping[str, str]) -> tuple[str | None, str | None, str | None]:
    return labels.get("covey.dev/unit"), labels.get("covey.dev/role"), labels.get("covey.dev/replica")

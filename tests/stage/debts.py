"""What others than Covey's processes still have to do: who owes something, the stage is not at rest.

Each takes what the API server lists, by kind, and says in a sentence what is owed, and by whom.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from covey.api.constants import ANNOTATION_PINNED, LABEL_POD_GROUP
from localcluster.components import FAKE_NODE
from scheduler_trees import pin_of
from soak.facts import read_node, read_pod

#: The taint of a node that is not heard of, which comes within seconds; and seconds for which evictions are waited for.
_UNREACHABLE: Final = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
_SOON: Final = 10.0
Object = dict[str, Any]
Lists = Mapping[str, Collection[Object]]


def find_debts(lists: Lists, schedulers: Collection[str]) -> Iterator[str]:
    """Say what is owed.

    Args:
        lists: all objects by kind.
        schedulers: names of the profiles that some kube-scheduler serves now.
    """
    for debt in (
        _of_kwok,
        _of_garbage_collector,
        _of_disruption_controller,
        _of_slices,
        _of_quotas,
        _of_node_life_cycle,
        _of_job_controller,
    ):
        yield from debt(lists)
    yield from _of_kube_scheduler(lists, schedulers)


def _of_kwok(lists: Lists) -> Iterator[str]:
    """Bound pods run and are Ready; those that are to go, go. A node that has failed has no kubelet any more."""
    nodes = {node["metadata"]["name"]: node for node in lists["Node"]}
    for pod in lists["Pod"]:
        meta, status = pod["metadata"], pod.get("status", {})
        node = nodes.get(pod["spec"].get("nodeName", ""))
        if node is None or FAKE_NODE[0] not in node["metadata"].get("annotations", {}):
            continue
        if "deletionTimestamp" in meta:
            if not meta.get("finalizers"):
                yield f"kubelet: pod {meta['name']} is to go"
        elif status.get("phase") not in {"Succeeded", "Failed"} and not _is_started(pod):
            yield f"kubelet: pod {meta['name']} is to start on {node['metadata']['name']}"


def _is_started(pod: Object) -> bool:
    conditions = {each["type"]: each["status"] for each in pod.get("status", {}).get("conditions", ())}
    gates = [each["conditionType"] for each in pod["spec"].get("readinessGates", ())]
    # Started before: what makes it unready since then, a test does.
    started = "startTime" in pod.get("status", {}) and "Ready" in conditions
    return started or (conditions.get("Ready") != "True" and any(conditions.get(gate) != "True" for gate in gates))


def _of_job_controller(lists: Lists) -> Iterator[str]:
    """Every Job has been looked at as it is, which makes its pods, or deletes them; and pods that run are done soon."""
    live: dict[str, list[Object]] = {}
    for pod in lists["Pod"]:
        meta = pod["metadata"]
        owners = [each["uid"] for each in meta.get("ownerReferences", ()) if each["kind"] == "Job"]
        if "batch.kubernetes.io/job-tracking" in meta.get("finalizers", ()):
            if "deletionTimestamp" in meta or pod.get("status", {}).get("phase") in {"Succeeded", "Failed"}:
                yield f"job controller: pod {meta['name']} is to be counted"
            elif "nodeName" in pod["spec"]:
                yield f"kubelet: pod {meta['name']} of a Job is to be done"
        for uid in owners:
            live.setdefault(uid, []).append(pod)
    for job in lists["Job"]:
        meta, status, is_suspended = job["metadata"], job.get("status", {}), bool(job["spec"].get("suspend"))
        conditions = {each["type"]: each["status"] == "True" for each in status.get("conditions", ())}
        if conditions.keys() & {"Complete", "Failed"}:
            continue
        pods = [
            pod
            for pod in live.get(meta["uid"], ())
            if pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}
        ]
        is_looked_at = is_suspended == conditions.get("Suspended", False) and is_suspended != ("startTime" in status)
        if not is_looked_at or status.get("active", 0) != len(pods) or (is_suspended and pods):
            yield f"job controller: Job {meta['name']} is to be looked at"


def _of_kube_scheduler(lists: Lists, schedulers: Collection[str]) -> Iterator[str]:
    """A pod that is let go has been tried: it is bound, or was found to have no place.

    One that Covey has pinned to a node with room for it is tried again, however it went before; but nobody lets go what
    has lost its group.
    """
    groups = {(group["metadata"]["namespace"], group["metadata"]["name"]) for group in lists["PodGroup"]}
    nodes = {node.name: node for node in map(read_node, lists["Node"])}
    free = {name: node.gpus for name, node in nodes.items() if node.fit}
    pods = [read_pod(pod) for pod in lists["Pod"]]
    for pod in pods:
        if pod.node in free and not pod.ended:
            free[pod.node] -= pod.gpus
    for found, pod in zip(lists["Pod"], pods, strict=True):
        if pod.node or pod.gates or pod.going or pod.ended or pod.scheduler not in schedulers:
            continue
        conditions = found.get("status", {}).get("conditions", ())
        refused = any(each["type"] == "PodScheduled" and each["reason"] == "Unschedulable" for each in conditions)
        meta = found["metadata"]
        group = meta.get("labels", {}).get(LABEL_POD_GROUP)
        pinned = meta.get("annotations", {}).get(ANNOTATION_PINNED) == meta["uid"]
        pinned = pinned and (group is None or (meta["namespace"], group) in groups)
        if not refused or (pinned and not pod.released and free.get(pin_of(found) or "", -1) >= pod.gpus):
            yield f"kube-scheduler: pod {pod.name} is to be tried"


def _of_garbage_collector(lists: Lists) -> Iterator[str]:
    """What belongs to a resource or root that is gone, goes."""
    uids = {item["metadata"]["uid"] for items in lists.values() for item in items}
    owners = {"DisaggregatedInference", *lists}
    for kind, items in lists.items():
        for item in items:
            meta = item["metadata"]
            references = meta.get("ownerReferences", ())
            held = meta.get("finalizers") or "deletionTimestamp" in meta
            if references and not held and all(each["kind"] in owners for each in references):
                gone = [each for each in references if each["uid"] not in uids and _is_ours(each)]
                if len(gone) == len(references):
                    yield f"garbage collector: {kind} {meta['name']} has no owner any more"


def _is_ours(reference: Object) -> bool:
    return "covey.dev/" in reference["apiVersion"]


def _of_disruption_controller(lists: Lists) -> Iterator[str]:
    """Every budget has been observed, and its healthy pods are counted."""
    for budget in lists["PodDisruptionBudget"]:
        meta, status, selector = budget["metadata"], budget.get("status", {}), budget["spec"].get("selector", {})
        if status.get("observedGeneration") != meta["generation"]:
            yield f"disruption controller: budget {meta['name']} is to be observed"
        # Evicted pods are not counted before they are gone; what cannot be computed stays as it was.
        failed = any(each["reason"] == "SyncFailed" for each in status.get("conditions", ()))
        if failed or status.get("disruptedPods"):
            continue
        ready = [
            pod["metadata"]
            for pod in lists["Pod"]
            if pod["metadata"]["namespace"] == meta["namespace"]
            and "deletionTimestamp" not in pod["metadata"]
            and _is_ready(pod)
        ]
        healthy = sum(_matches(selector, pod) for pod in ready)
        # Of a pod that has lost its labels it is not told.
        if not healthy <= status.get("currentHealthy", 0) <= len(ready):
            yield f"disruption controller: budget {meta['name']} has {healthy} healthy pods"


def _matches(selector: Object, meta: Object) -> bool:
    """Tell whether a selector of labels selects an object."""
    labels = meta.get("labels", {})
    for term in selector.get("matchExpressions", ()):
        there = labels.get(term["key"]) in term["values"] if term.get("values") else term["key"] in labels
        if there is (term["operator"] in {"NotIn", "DoesNotExist"}):
            return False
    return bool(selector.get("matchLabels", {}).items() <= labels.items())


def _of_slices(lists: Lists) -> Iterator[str]:
    """Every pod with an address that a Service selects is in its slices, ready as it is, and no other is."""
    told: dict[tuple[str, str], dict[str, bool]] = {}
    for item in lists["EndpointSlice"]:
        meta = item["metadata"]
        service = (meta["namespace"], meta["labels"].get("kubernetes.io/service-name", ""))
        for endpoint in item.get("endpoints") or ():
            if "targetRef" in endpoint:
                told.setdefault(service, {})[endpoint["targetRef"]["name"]] = bool(endpoint["conditions"].get("ready"))
    for service in lists["Service"]:
        meta, selector = service["metadata"], service["spec"].get("selector") or {}
        if not selector or "deletionTimestamp" in meta:
            continue
        unready = bool(service["spec"].get("publishNotReadyAddresses"))
        wanted = {
            pod["metadata"]["name"]: unready or _is_ready(pod)
            for pod in lists["Pod"]
            if pod["metadata"]["namespace"] == meta["namespace"]
            and selector.items() <= pod["metadata"].get("labels", {}).items()
            and pod.get("status", {}).get("podIP")
            and pod["status"].get("phase") == "Running"
        }
        shown = told.get((meta["namespace"], meta["name"]), {})
        going = {each["metadata"]["name"] for each in lists["Pod"] if "deletionTimestamp" in each["metadata"]}
        if {name: ready for name, ready in shown.items() if name not in going} != {
            name: ready for name, ready in wanted.items() if name not in going
        }:
            yield f"slices of Service {meta['name']}: {shown}, not {wanted}"


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _of_node_life_cycle(lists: Lists) -> Iterator[str]:
    """Pods that do not tolerate a taint NoExecute, or for a moment only, are evicted; a node that is not heard of gets one."""
    for node in lists["Node"]:
        name = node["metadata"]["name"]
        conditions = node.get("status", {}).get("conditions", ())
        taints = [taint for taint in node["spec"].get("taints", ()) if taint["effect"] == "NoExecute"]
        if not any(each["type"] == "Ready" and each["status"] == "True" for each in conditions):
            taints.append(_UNREACHABLE)
        for pod in lists["Pod"] if taints else ():
            if pod["spec"].get("nodeName") != name or "deletionTimestamp" in pod["metadata"]:
                continue
            if any(_patience(pod, taint) <= _SOON for taint in taints):
                yield f"node life cycle controller: pod {pod['metadata']['name']} is to go from {name}"


def _patience(pod: Object, taint: Object) -> float:
    """Seconds for which a pod tolerates a taint."""
    for each in pod["spec"].get("tolerations", ()):
        same = each.get("operator") == "Exists" or each.get("value", "") == taint.get("value", "")
        if same and each.get("key", taint["key"]) == taint["key"] and each.get("effect", "NoExecute") == "NoExecute":
            return float(each.get("tolerationSeconds", "inf"))
    return 0.0


def _of_quotas(lists: Lists) -> Iterator[str]:
    for quota in lists["ResourceQuota"]:
        meta = quota["metadata"]
        live = [
            pod
            for pod in lists["Pod"]
            if pod["metadata"]["namespace"] == meta["namespace"]
            and pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}
        ]
        status, scoped = quota.get("status", {}), quota["spec"].keys() & {"scopes", "scopeSelector"}
        counts = {status.get("used", {}).get(key) for key in ("pods",) if key in quota["spec"]["hard"]}
        if status.get("hard") != quota["spec"]["hard"] or (not scoped and counts - {str(len(live))}):
            yield f"quota controller: quota {meta['name']} is to be counted"

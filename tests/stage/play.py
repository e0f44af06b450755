"""One story's part of the stage: a namespace, the nodes that it has been lent, and what can be done and be so.

What is done goes to the API server at once. What is then so is read from the record, at rest (``settle``), and what was
so meanwhile is claimed of its history (``was``, ``never``, ``order``).
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from builders import files
from builders.manifests import role
from cluster.workbench import is_gated, is_ready, label, name_of, uid_of
from covey.api.core import seconds
from covey.kube.resources import PRIORITY_CLASSES, Resource
from localcluster import Nodes, concurrently
from scheduler_trees import RELEASE, Bench, Tree, node_of
from stage.ground import AHEAD, COVEY_PROFILE, EVERYTHING, KUBE_SCHEDULER, OPERATOR, Ground
from stage.laws import JUDGED, find_violations
from stage.record import KINDS, Event, Object, states
from stage.wire import Death, Denial, Write

BLOCK: Final = "cloud.provider.com/topology-block"
RACK: Final = "cloud.provider.com/topology-rack"
INFERENCE: Final = "DisaggregatedInference"
ROOT: Final = "CompositePodGroup"
#: Two roles of four and two pods.
ROLES: Final = (role("prefill", replicas=2, size=2), role("decode", replicas=2))


class Stage:
    """What a story has; ``ground`` outlives it."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.cluster = ground.cluster
        ground.begin()
        self.namespace = ground.lend_namespace()
        self._lent: set[str] = set()
        self._set = False
        self._touched: set[str] = set()
        #: Laws that a story breaks itself, so that they are not judged; it says why.
        self.excused: set[str] = set()
        self._after: list[Callable[[], None]] = []

    def end(self) -> None:
        """Come to rest, judge the history, and give everything back."""
        try:
            self.settle()
            self.check_laws()
        finally:
            for wire in self.ground.wires.values():
                wire.denials.clear()
                wire.death = None
            self.ground.start()
            for undo in reversed(self._after):
                undo()
            self.ground.take_namespace_back(self.namespace)
            self.ground.take_nodes_back(self._lent)

    def check_laws(self) -> None:
        """Judge what happened so far by what must hold in every story."""
        condemned = [
            _key_of(write.path)
            for write in self.ground.wires[OPERATOR].writes
            if (write.verb, write.resource) == ("delete", "pods")
        ]
        found = find_violations(self.ground.record.events(*JUDGED), condemned, self._touched)
        violations = [str(violation) for violation in found if violation.rule not in self.excused]
        assert not violations, "\n".join(violations)

    # Rest and time

    def settle(self, ahead: float = AHEAD) -> None:
        """Wait until nobody has anything to do (``Ground.settle``)."""
        self.ground.settle(ahead)

    def advance(self, seconds: float) -> None:
        """Let so much time have passed for Covey (``Ground.advance``)."""
        self.ground.advance(seconds)

    def await_event(self, reached: Callable[[], bool], what: str) -> None:
        """Wait for what stands only on the way to rest, such as a process that is to be killed then."""
        self.ground.wait(reached, what)

    # Nodes

    def nodes(self, **description: Any) -> list[str]:
        """Have nodes (``localcluster.Nodes``); those of a story before that are not asked for go at the first pod."""
        names = self.ground.lend_nodes(Nodes(**description))
        self._lent |= set(names)
        return names

    def claim_nodes(self) -> None:
        """Delete the nodes of the story before, which are no room for this one; done at the first pod."""
        if not self._set:
            self.ground.keep_nodes(self._lent)
            self._set = True

    def cordon(self, node: str) -> None:
        """Let no new pod on a node."""
        self.cluster.api("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})

    def uncordon(self, node: str) -> None:
        """Let new pods on a node again."""
        self.cluster.api("PATCH", f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}})

    def fail_nodes(self, names: Iterable[str], *, out_of_service: bool = True) -> None:
        """Let nodes die, and then say of all of them that they are out of service."""
        dead = sorted(names)
        # Whatever becomes of their pods, this has done it.
        self._touched |= {uid_of(pod) for pod in self.all("Pod") if node_of(pod) in dead}
        concurrently(self.cluster.fail_node, dead)
        for node in dead if out_of_service else ():
            self.taint(node, "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")

    def taint(self, node: str, taint: str) -> None:
        """Add a taint to a node: ``key=value:Effect``."""
        self.cluster.kubectl("taint", "node", node, taint)

    def delete_nodes(self, *names: str) -> None:
        """Delete nodes."""
        self.ground.drop_nodes(names)

    def domains(self, pods: Iterable[Object], *keys: str) -> set[tuple[str, ...]]:
        """The domains that bound pods lie in, as values of these labels of nodes."""
        nodes = self.ground.record.objects["Node"]
        return {tuple(nodes["", node_of(pod)]["metadata"]["labels"].get(key, "") for key in keys) for pod in pods}

    # Objects

    def path(self, kind: str, name: str = "") -> str:
        """The path of a list, or of an object in it."""
        return _resource(kind).path(self.namespace, name or None)

    def create(self, *roles: Object, name: str = "llm", **spec: Any) -> Object:
        """Create a resource; of ``ROLES`` unless others are given."""
        self.claim_nodes()
        body = {
            "apiVersion": "inference.covey.dev/v1alpha1",
            "kind": INFERENCE,
            "metadata": {"name": name},
            "spec": {"roles": list(roles or ROLES), **spec},
        }
        return self.cluster.api("POST", self.path(INFERENCE), body)

    def change(self, name: str = "llm", **spec: Any) -> None:
        """Change fields of a spec."""
        self.cluster.api("PATCH", self.path(INFERENCE, name), {"spec": spec})

    def patch(self, kind: str, name: str, body: Any) -> Object:
        """Change an object."""
        self._touch(kind, name)
        return self.cluster.api("PATCH", self.path(kind, name), body)

    def patch_status(self, kind: str, name: str, status: Object) -> None:
        """Change the status of an object, as its own controller or kubelet would."""
        self._touch(kind, name)
        self.cluster.api("PATCH", f"{self.path(kind, name)}/status", {"status": status}, patch="strategic")

    def delete(self, kind: str, name: str, grace: int | None = None, *, policy: str = "Background") -> None:
        """Delete an object, and what belongs to it as kubectl does: by default the API server would leave the pods of a Job."""
        self._touch(kind, name)
        seconds = f"&gracePeriodSeconds={grace}" if grace is not None else ""
        self.cluster.api("DELETE", f"{self.path(kind, name)}?propagationPolicy={policy}{seconds}")

    def get(self, kind: str, name: str) -> Object:
        """An object as it was last; LookupError where there is none."""
        return self.ground.record.objects[kind][self.namespace, name]

    def all(self, kind: str) -> list[Object]:
        """The objects of a kind as they were last."""
        return [
            item for (namespace, _), item in self.ground.record.objects[kind].items() if namespace == self.namespace
        ]

    def owned(self, kind: str) -> list[Object]:
        """Those of them that belong to some resource."""
        return [item for item in self.all(kind) if item["metadata"].get("ownerReferences")]

    def kubectl(self, *arguments: str) -> str:
        """What kubectl prints about this namespace."""
        return self.cluster.kubectl(*arguments, "--namespace", self.namespace)

    def outlive_second_of(self, item: Object) -> None:
        """Have what is created from now on be younger than an object: times of objects are in whole seconds."""
        since = seconds(item["metadata"]["creationTimestamp"]) or 0.0
        self.ground.wait(lambda: time.time() >= since + 1.0, "a later second")

    def pods(self, **labels: Any) -> list[Object]:
        """Live pods with these ``covey.dev`` labels."""
        wanted = {f"covey.dev/{key}": str(value) for key, value in labels.items()}
        return [
            pod
            for pod in self.all("Pod")
            if "deletionTimestamp" not in pod["metadata"]
            and pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}
            and wanted.items() <= pod["metadata"].get("labels", {}).items()
        ]

    def bound(self, **labels: Any) -> list[Object]:
        """Those of them that have a node."""
        return [pod for pod in self.pods(**labels) if node_of(pod)]

    def ready(self, count: int, **labels: Any) -> list[Object]:
        """The pods at rest: so many, all of them Ready."""
        self.settle()
        pods = self.pods(**labels)
        states = {name_of(pod): f"{node_of(pod)}{_readiness(pod)}" for pod in pods}
        assert len(pods) == count, f"{len(pods)} pods of {count}: {states}; {self.told()}"
        assert all(map(is_ready, pods)), f"not all are Ready: {states}; {self.told()}"
        return pods

    def condition(self, kind: str, name: str = "llm", of: str = INFERENCE) -> tuple[str, str, str]:
        """Status, reason and message of a condition; empty where it is not there."""
        conditions = self.get(of, name).get("status", {}).get("conditions", ())
        return next(
            ((each["status"], each["reason"], each["message"]) for each in conditions if each["type"] == kind),
            ("", "", ""),
        )

    def status(self, name: str = "llm") -> Object:
        """The status of a resource."""
        found = self.get(INFERENCE, name)
        status = found.get("status", {})
        assert status.get("observedGeneration") == found["metadata"]["generation"], "the status is of another spec"
        return status

    def refusal(self, name: str = "llm", reason: str = "Infeasible", of: str = INFERENCE) -> str:
        """Why a resource, or a root, is not admitted, at rest: the message of this reason; none of its pods is let go."""
        self.settle()
        status, found, message = self.condition("Admitted", name, of)
        assert (status, found) == ("False", reason), f"{status}, {found}: {message}"
        assert all(map(is_gated, self.pods(inference=name))), self.told()
        return message

    def told(self) -> dict[str, str]:
        """What the REASON column says of each resource."""
        return {
            name_of(item): item.get("status", {}).get("summary", {}).get("reason", "") for item in self.all(INFERENCE)
        }

    def event_notes(self, reason: str) -> list[str]:
        """The notes of the Events with a reason."""
        found = [event.object for event in self.history("Event") if event.change == "ADDED"]
        return [event["note"] for event in found if event["reason"] == reason]

    def writes(self, process: str, verb: str, resource: str) -> list[Write]:
        """What a process has written of a resource (plural) in this story."""
        return [write for write in self.ground.wires[process].writes if write[1:3] == (verb, resource)]

    def dry_runs(self, process: str) -> list[Write]:
        """What a process has asked the API server in this story whether it would take it."""
        return self.ground.wires[process].dry_runs

    def kube_scheduler(self, name: str) -> None:
        """Have another kube-scheduler, the stock one, until the story ends; ``name`` is its profile's."""
        self.cluster.start_scheduler(name=name)
        self.ground.profiles.add(name)
        self.after(lambda: self.ground.profiles.discard(name))
        self.after(lambda: self.cluster.forget(name))

    def stranger(self, name: str, node: str, *, gpus: int = 8, **spec: Any) -> None:
        """Have a pod of no gang that wants a place on a node."""
        self.claim_nodes()
        container = {"name": "c", "image": "registry.test/c:1", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
        body = {
            "containers": [container],
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 0,
            **spec,
        }
        self.cluster.api("POST", self.path("Pod"), {"metadata": {"name": name}, "spec": body})

    def occupy(self, node: str, *, gpus: int = 8, name: str = "") -> str:
        """Have another scheduler's pod on a node; returns its name."""
        self.claim_nodes()
        name = name or f"other-{node}"
        container = {"name": "job", "image": "registry.test/job:1", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
        spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0}
        self.cluster.api("POST", self.path("Pod"), {"metadata": {"name": name}, "spec": spec})
        return name

    def quota(self, name: str, **hard: Any) -> None:
        """Have a ResourceQuota with these amounts, or change one."""
        amounts = {key.replace("__", "."): str(value) for key, value in hard.items()}
        body = {"metadata": {"name": name}, "spec": {"hard": amounts}}
        if (self.namespace, name) in self.ground.record.objects["ResourceQuota"]:
            self.cluster.api("PATCH", self.path("ResourceQuota", name), body)
        else:
            self.cluster.api("POST", self.path("ResourceQuota"), body)
        # Pods that are created before it is counted are refused.
        self.settle(0.0)

    def priority_class(self, name: str, value: int) -> str:
        """Have a PriorityClass until the story ends; returns its name."""
        path = PRIORITY_CLASSES.path(None)
        self.cluster.api("POST", path, {"metadata": {"name": name}, "value": value})
        self.after(lambda: self.cluster.delete(f"{path}/{name}"))
        return name

    def after(self, undo: Callable[[], None]) -> None:
        """Undo something when the story ends."""
        self._after.append(undo)

    # The past

    def history(self, *kinds: str) -> list[Event]:
        """What happened to the objects of these kinds in this namespace, in the order of the API server."""
        return self.ground.record.events(*kinds, namespace=self.namespace)

    def was(self, kind: str, so: Callable[[Object], Any]) -> bool:
        """Tell whether some object of a kind was ever so."""
        return any(so(event.object) for event in self.history(kind) if event.change != "DELETED")

    def never(self, kind: str, so: Callable[[Object], Any]) -> bool:
        """Tell whether no object of a kind was ever so."""
        return not self.was(kind, so)

    def order(self, *claims: tuple[str, Callable[[Event], Any]]) -> bool:
        """Tell whether the first event of each claim (kind, and what holds of it) came after that of the one before."""
        versions = [next((event.version for event in self.history(kind) if so(event)), None) for kind, so in claims]
        assert None not in versions, f"claim {versions.index(None)} was never so"
        return versions == sorted(versions, key=lambda version: version or 0)

    # Faults

    def kill(self, process: str, at: int) -> Death:
        """Have a process die at its ``at``-th write from now on, which is done, and whose answer nobody hears.

        Its successor starts at once.
        """
        death = Death(at)
        self.ground.wires[process].death = death
        return death

    def kill_now(self, process: str) -> None:
        """End a process at once, and start its successor."""
        self.ground.kill(process)
        self.ground.start(process)

    def deny(
        self,
        process: str,
        nth: int = 1,
        *,
        verbs: Collection[str] = (),
        resources: Collection[str] = (),
        times: int = 1,
    ) -> Denial:
        """Have the ``nth`` write of a process denied, of those of these verbs and resources (plurals)."""
        denial = Denial(nth, verbs, resources, times)
        self.ground.wires[process].denials.append(denial)
        return denial

    @contextlib.contextmanager
    def late(self, process: str, *plurals: str) -> Iterator[None]:
        """Keep the news of these kinds from a process for as long as the block lasts.

        Meanwhile time passes only as rest needs it: ``settle(ahead=1)`` is at most two seconds.
        """
        with self.ground.late(process, *plurals):
            yield

    @contextlib.contextmanager
    def away(self, *processes: str) -> Iterator[None]:
        """Have processes away: stopped as at SIGTERM at the beginning of the block, and started again at its end.

        ``kube-scheduler`` is killed.
        """
        ours = [name for name in processes if name != KUBE_SCHEDULER]
        if KUBE_SCHEDULER in processes:
            self.cluster.processes[KUBE_SCHEDULER].kill()
            self.ground.profiles.discard(COVEY_PROFILE)
        if ours:
            self.ground.stop(*ours)
        try:
            yield
        finally:
            if ours:
                self.ground.start(*ours)
            if KUBE_SCHEDULER in processes:
                self.cluster.processes[KUBE_SCHEDULER].start()
                self.ground.profiles.add(COVEY_PROFILE)

    def restart(self, **settings: Mapping[str, Any]) -> None:
        """Begin both processes anew, with these settings until the story ends: by process, field and value."""
        self.ground.restart(**settings)

    def _touch(self, kind: str, name: str) -> None:
        if kind == "Pod" and (pod := self.ground.record.objects["Pod"].get((self.namespace, name))) is not None:
            self._touched.add(uid_of(pod))


class Trees(Bench):
    """Groups and pods made by hand, as another controller would."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage.cluster, stage.namespace)
        self._stage = stage

    def workload(self, name: str) -> Object:
        """An owner of groups and pods, and a Workload; returns the owner's reference."""
        self._stage.claim_nodes()
        path = f"/api/v1/namespaces/{self.namespace}/configmaps/{name}"
        self._stage.after(lambda: self._stage.cluster.delete(path))
        return super().workload(name)

    def pod(self, name: str, **spec: Any) -> Object:
        """A pod of no gang, for Covey's profile unless another ``scheduler`` is given."""
        self._stage.claim_nodes()
        return super().pod(name, **spec)


def replace_released(stage: Stage, *trees: Tree) -> list[str]:
    """Replace released pods until none is left, as a controller would; return why, in the order in which it was seen."""
    reasons: list[str] = []
    while True:
        stage.settle()
        found = {name_of(pod): pod["metadata"].get("annotations", {}).get(RELEASE) for pod in stage.pods()}
        released = {name: reason for name, reason in found.items() if reason is not None}
        if not released:
            return reasons
        reasons += released.values()
        for tree in trees:
            tree.replace(released)


def by_replica(pods: Iterable[Object]) -> dict[tuple[str, str, str, str], list[Object]]:
    """Pods by resource, unit, role and replica."""
    found: dict[tuple[str, str, str, str], list[Object]] = {}
    for pod in pods:
        key = (label(pod, "inference"), label(pod, "unit"), label(pod, "role"), label(pod, "replica"))
        found.setdefault(key, []).append(pod)
    return found


def fewest_serving(
    stage: Stage, role: str, wanted: int, *, size: int = 1, serves: Callable[[Object], bool] = is_ready, **labels: Any
) -> int:
    """The fewest replicas of a role that served at any moment since as many as wanted did.

    Args:
        stage: where.
        role: the role, of those pods that have these ``covey.dev`` labels.
        wanted: so many served first.
        size: pods of a replica.
        serves: of a pod that is not told to go.
    """
    wanted_labels = {f"covey.dev/{key}": value for key, value in {**labels, "role": role}.items()}
    counts = []
    for _, pods in states(stage.history("Pod")):
        serving = Counter(
            (label(pod, "unit"), label(pod, "replica"))
            for pod in pods.values()
            if wanted_labels.items() <= pod["metadata"].get("labels", {}).items()
            and serves(pod)
            and "deletionTimestamp" not in pod["metadata"]
        )
        counts.append(sum(pods >= size for pods in serving.values()))
    return min(counts[counts.index(wanted) :])


def image_of(pod: Object) -> str:
    """What the first container of a pod shall run: what stands behind the colon."""
    return str(pod["spec"]["containers"][0]["image"]).rpartition(":")[2]


def _readiness(pod: Object) -> str:
    """Whether a pod is Ready, and if not, who has written its status."""
    if is_ready(pod):
        return " Ready"
    writers = [entry["manager"] for entry in pod["metadata"].get("managedFields", ()) if entry.get("subresource")]
    return f" not Ready, by {', '.join(writers)}" if writers else ""


def _resource(kind: str) -> Resource:
    return KINDS[kind]


def _key_of(path: str) -> tuple[str, str]:
    parts = path.split("/")
    return parts[-3], parts[-1]


def run_covey(stage: Stage, *arguments: str) -> tuple[int, str]:
    """Run the command line of Covey, which writes by itself; return how it exits, and what it prints."""
    result = files.covey(*arguments, "--kubeconfig", stage.cluster.kubeconfig)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    stage.ground.cluster.writes += 1
    stage.ground.cluster.written.add(EVERYTHING)
    return result.exit_code, result.output

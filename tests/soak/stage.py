"""The cluster of a soak: what runs, what is wanted, what is ill, and how all of it is put right."""

from __future__ import annotations

import contextlib
import copy
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from localcluster import Cluster, eventually, programs, request
from localcluster.programs import Program
from soak.checker import Checker
from soak.facts import GPU, Owner, Pod
from soak.fleet import Fleet
from soak.proxy import Proxy, proxied_kubeconfig
from soak.quiet import Quiet
from soak.settings import BORROW, CLASSES, COHORT, KINDS, NAMESPACES, NODES, NOMINAL, PATIENT, PER_MINUTE, Kind
from soak.supervision import SCHEDULER, Supervision
from soak.watching import Watching

Spec = dict[str, Any]
Answer = TypeVar("Answer")

RESOURCES: Final = "/apis/inference.covey.dev/v1alpha1/namespaces/{}/disaggregatedinferences"
#: Covey's processes, behind a proxy each.
PROXIED: Final[tuple[Program, ...]] = ("operator", "scheduler")
#: Nodes where a resource has failed again and again are avoided no longer than a calm takes; room is kept for a gang
#: that waits within a storm.
FLAGS: Final = {
    "operator": ("--avoid-node-seconds=5",),
    "scheduler": ("--reserve-after=3s", f"--max-preemptions-per-minute={PER_MINUTE}"),
}
#: In the words of the API server where a quota refuses something: not before the quota changes.
OVER_QUOTA: Final = "exceeded quota"
_PATIENCE: Final = 60.0
#: Seconds until a request is given up that hangs in an API server without etcd.
_TIMEOUT: Final = 5.0


@dataclass(order=True)
class Later:
    """Something to do at a time (``time.monotonic``)."""

    due: float
    number: int
    what: str = field(compare=False)
    do: Callable[[], object] = field(compare=False)
    #: It takes a fault back, so it is done at once when everything is to be put right.
    heals: bool = field(compare=False, default=True)


class Stage(Supervision):
    """Everything that choices act upon.

    Args:
        cluster: A running control plane with Covey's rights, without schedulers.
        checker: Is told what is about to happen.
        generator: Decides which requests the proxies hit.
        kinds: The resources.
        say: Prints a line.
    """

    def __init__(
        self,
        cluster: Cluster,
        checker: Checker,
        generator: random.Random,
        say: Callable[[str], object],
        kinds: tuple[Kind, ...] = KINDS,
    ) -> None:
        super().__init__(cluster, Quiet(), say)
        self.checker = checker
        self.kinds = kinds
        self.specs: dict[Owner, Spec] = {}
        self.proxies: dict[str, Proxy] = {}
        self.watching: Watching
        self.strangers: list[tuple[str, str]] = []
        #: Objects of strangers that look like ours: path and UID.
        self.foreign: dict[str, str] = {}
        #: Namespaces that have a quota, or had one a moment ago.
        self.limited = checker.world.limited
        #: Names of objects that are hard to read.
        self.hostile: set[str] = set()
        #: Gangs that ask for very much.
        self.vast: set[Owner] = set()
        #: Gangs and fillers that will end by themselves.
        self.arrived: set[Owner] = set()
        #: Those for which room was kept.
        self.kept: set[Owner] = set()
        self.fleet = Fleet(self)
        self.counter = 0
        #: How often something was done to a pod, by UID.
        self._touches: Counter[str] = Counter()
        self._later: list[Later] = []
        self._random = generator

    # Set-up

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Start everything that is needed; the processes end with the cluster."""
        cluster = self.cluster
        with contextlib.ExitStack() as stack:
            cluster.install_rbac()
            cluster.install_account_policies()
            cluster.add_nodes(NODES)
            for program in PROXIED:
                deleting = self._deleting if program == "operator" else lambda *_: None
                proxy = Proxy(cluster.server, cluster.files.authority, self._random, deleting)
                self.proxies[program] = stack.enter_context(proxy)
            for program in PROXIED:
                # The clients of a lease wait for its end after a kill, as in production.
                flags = (f"--kubeconfig={self._kubeconfig(program)}", "--leader-elect=true", *FLAGS.get(program, ()))
                cluster.start_covey(program, *flags)
            config = programs.scheduler_config(cluster.processes[SCHEDULER])
            cluster.start_scheduler(config)
            cluster.start_scheduler(name="default-scheduler")
            self._set_up_queues()
            for namespace in NAMESPACES:
                cluster.ensure("/api/v1/namespaces", {"metadata": {"name": namespace}})
                eventually(
                    lambda path=f"/api/v1/namespaces/{namespace}/serviceaccounts/default": cluster.api("GET", path)
                )
            self.watching = Watching(
                cluster.client, self.checker, self.quiet, lambda found: self.say(f"VIOLATION {found}")
            )
            stack.enter_context(self.watching)
            yield

    def _set_up_queues(self) -> None:
        """Make the priorities, and a Queue for each namespace."""
        for name, value in CLASSES.items():
            policy = "Never" if name == PATIENT else "PreemptLowerPriority"
            body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
            self.cluster.ensure("/apis/scheduling.k8s.io/v1/priorityclasses", body)
        for name, nominal in NOMINAL.items():
            spec = {
                "namespaces": {"selector": {"matchLabels": {"kubernetes.io/metadata.name": name}}},
                "cohort": COHORT,
                "flavors": [
                    {
                        "resources": [
                            {"name": GPU, "nominal": nominal, **({"borrow": BORROW[name]} if name in BORROW else {})}
                        ]
                    }
                ],
            }
            queue = {"apiVersion": "scheduling.covey.dev/v1alpha1", "kind": "Queue", "metadata": {"name": name}}
            self.cluster.ensure("/apis/scheduling.covey.dev/v1alpha1/queues", queue | {"spec": spec})

    def _kubeconfig(self, program: str) -> Path:
        """As the process's own account, through its proxy."""
        return proxied_kubeconfig(self.cluster, self.proxies[program], f"covey-{program}")

    def _deleting(self, namespace: str, name: str) -> None:
        self.checker.world.condemned.add((namespace, name))

    # Requests

    def patiently(self, do: Callable[[], Answer]) -> Answer | None:
        """Try until it is done; None when the object is not there (any more), or a conflict made it pointless.

        Raises:
            ApiException: the API server refuses for good.
            HTTPError: nobody answers for a minute.
        """
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return do()
            except ApiException as error:
                if error.status in {404, 409}:
                    return None
                # 0 is a TLS handshake that broke off.
                if OVER_QUOTA in str(error.body):
                    raise
                if error.status not in {0, 429, 401, 403} and error.status < 500:
                    raise
                if time.monotonic() > deadline:
                    raise
            except HTTPError:
                if time.monotonic() > deadline:
                    raise
            self.run_due()
            time.sleep(0.2)

    def api(self, method: str, path: str, body: Any = None, *, patch: str | None = None) -> Any:
        """One request, tried until it is done."""
        return self.patiently(lambda: request(self.cluster.client, method, path, body, patch=patch, timeout=_TIMEOUT))

    # Resources

    def create(self, kind: Kind) -> None:
        """Create a resource as it is at the beginning."""
        owner = Owner(kind.namespace, kind.name)
        spec = copy.deepcopy(dict(kind.spec))
        self.specs[owner] = spec
        self.note(owner, spec)
        body = {
            "apiVersion": "inference.covey.dev/v1alpha1",
            "kind": "DisaggregatedInference",
            "metadata": {"name": kind.name},
            "spec": spec,
        }
        self.api("POST", RESOURCES.format(kind.namespace), body)

    def delete(self, owner: Owner) -> None:
        """Delete a resource: nothing of it need serve from now on, whichever watch tells of it first."""
        self.note(owner, self.specs.pop(owner) | {"suspend": True})
        self.api("DELETE", f"{RESOURCES.format(owner.namespace)}/{owner.name}")

    def edit(self, owner: Owner, change: Callable[[Spec], object]) -> Spec:
        """Change a spec; returns the one before."""
        before = self.specs[owner]
        after = copy.deepcopy(before)
        change(after)
        self.write(owner, after)
        return before

    def write(self, owner: Owner, spec: Spec) -> None:
        """Bring a spec in."""
        if owner not in self.specs:
            return
        self.specs[owner] = spec
        self.note(owner, spec)
        self.api("PATCH", f"{RESOURCES.format(owner.namespace)}/{owner.name}", {"spec": {"rollout": None, **spec}})

    def kind(self, owner: Owner) -> Kind:
        """The resource's limits."""
        return next(kind for kind in self.kinds if (kind.namespace, kind.name) == owner)

    def note(self, owner: Owner, spec: Spec) -> None:
        """A spec is about to be written."""
        with self.watching.lock:
            self.checker.will_write(owner, spec, self.quiet.now())

    # Pods

    def pods(self) -> list[Pod]:
        """The live pods of resources, in an order that does not depend on their names."""
        with self.watching.lock:
            found = [pod for pod in self.checker.world.pods.values() if pod.replica is not None and pod.live]
        return sorted(found, key=lambda pod: (pod.replica or (), pod.index, pod.uid))

    def touch(self, pod: Pod) -> None:
        """Something is about to be done to a pod."""
        with self.watching.lock:
            self._touches[pod.uid] += 1
            self.checker.world.touched.add(pod.uid)
            if pod.replica is not None:
                self.checker.world.rests.stir(pod.replica.side.owner)

    def stir(self, owner: Owner) -> None:
        """There is about to be a reason to take pods of a resource away."""
        with self.watching.lock:
            self.checker.world.rests.stir(owner)

    def stir_node(self, name: str) -> None:
        """There is about to be a reason to take away the pods of a node."""
        with self.watching.lock:
            self.checker.world.stir_node(name)

    def spare(self, pod: Pod) -> None:
        """Nothing was done to it this time; what was done before stays done."""
        with self.watching.lock:
            self._touches[pod.uid] -= 1
            if self._touches[pod.uid] <= 0:
                self.checker.world.touched.discard(pod.uid)

    # Time

    def later(self, seconds: float, what: str, do: Callable[[], object], *, heals: bool = True) -> None:
        """Do something after some seconds."""
        self.counter += 1
        self._later.append(Later(time.monotonic() + seconds, self.counter, what, do, heals))

    def run_due(self) -> None:
        """Do what is due."""
        for each in sorted(self._later):
            if each.due <= time.monotonic() and each in self._later:
                self._later.remove(each)
                each.do()

    def heal(self) -> None:
        """Take every fault back, now."""
        for each in sorted(self._later):
            if each in self._later:
                self._later.remove(each)
                if each.heals:
                    each.do()
        for proxy in self.proxies.values():
            proxy.trouble.clear()
        self.quiet.settle("api")
        eventually(self.all_work, 120, lambda: f"all processes work: {sorted(self.down)}")
        self.fleet.heal()
        self._make_ready()

    def all_work(self) -> bool:
        """All processes do, and nothing is due."""
        self.run_due()
        self.look_after()
        return not self.down and not self._later

    def _make_ready(self) -> None:
        """Do what a kubelet does after its node was lost: say that the pods, which ran on, are Ready."""
        for pod in self.pods():
            if pod.node and not pod.ready:
                self.set_ready(pod, "True")

    def set_ready(self, pod: Pod, status: str) -> None:
        """Say as a kubelet whether a pod is Ready."""
        condition = {"type": "Ready", "status": status, "reason": "Soak"}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        body = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        self.api("PATCH", path, body, patch="strategic")

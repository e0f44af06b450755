"""What happens to a deployment in its life, in figures: growth, rollouts, losses, and what rest costs.

One control plane with kwok's nodes, all of Covey's processes with their own rights, and other load meanwhile: resources
that run, and ordinary pods that come and go. ``--only`` names the figures; nothing is asserted.

scale       Patch of one role's replicas by one, to the new replica bound.
rollout     New images of all roles of 64 pods: the fewest replicas that served of each role, over the minimum and over
            what is wanted, and waves. The wave of a new replica is one more than the highest of those that served when
            it was created, so the most is how often a model had to be loaded one after the other. Lower bound: the
            docstring of ``covey.rollout.window``. A control plane of its own, where a pod is Ready a fixed time after it
            was bound, as if it loaded a model.
death       A node goes, to as many replicas serving as before.
requests    What operator and scheduler process ask of the API server for one step, by their own metrics, watches and
            Events included.
rest        Memory, processor time and requests of the operator with many resources at rest.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.request import urlopen

from bench.machine import describe_machine
from bench.native import cpu_seconds
from localcluster import ApiError, Cluster, Nodes, NotReachedError, Process, concurrently, eventually
from scrapes import Scrape
from soak.facts import Pod, Replica, by_replica, read_pod

Json = dict[str, Any]
NAMESPACE: Final = "life"
RESOURCES: Final = f"/apis/inference.covey.dev/v1alpha1/namespaces/{NAMESPACE}/disaggregatedinferences"
PODS: Final = f"/api/v1/namespaces/{NAMESPACE}/pods"
FIGURES: Final = ("scale", "rollout", "death", "requests", "rest")
PROGRAMS: Final = ("covey-operator", "covey-scheduler")


def role(name: str, replicas: int, *, gpus: int = 1, image: int = 1, **fields: Any) -> Json:
    """A role of small pods."""
    container = {
        "name": "engine",
        "image": f"registry.test/engine:{image}",
        "resources": {"limits": {"nvidia.com/gpu": str(gpus)}},
    }
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    return {"name": name, "replicas": replicas, "template": template, **fields}


@dataclass
class Bench:
    """The cluster and what is asked of it."""

    cluster: Cluster
    rows: list[tuple[str, str]] = field(default_factory=list)

    def tell(self, what: str, value: str) -> None:
        """One row of the table."""
        self.rows.append((what, value))
        print(f"{what:<72}{value}", flush=True)

    def create(self, name: str, roles: Sequence[Json], **spec: Any) -> None:
        """A resource."""
        body = {"apiVersion": "inference.covey.dev/v1alpha1", "kind": "DisaggregatedInference"}
        self.cluster.api(
            "POST", RESOURCES, {**body, "metadata": {"name": name}, "spec": {"roles": list(roles), **spec}}
        )

    def change(self, name: str, **spec: Any) -> None:
        """A change of its spec."""
        self.cluster.api("PATCH", f"{RESOURCES}/{name}", {"spec": spec})

    def delete(self, name: str) -> None:
        """Delete a resource, and wait until its pods are gone."""
        self.cluster.api("DELETE", f"{RESOURCES}/{name}")
        eventually(lambda: not self.pods(name), 120)

    def pods(self, name: str) -> list[Pod]:
        """Its pods."""
        path = f"{PODS}?labelSelector=covey.dev%2Finference%3D{name}"
        return [read_pod(each) for each in self.cluster.api("GET", path)["items"]]

    def serving(self, name: str) -> set[Replica]:
        """Its replicas that serve."""
        return {replica for replica, pods in by_replica(iter(self.pods(name))).items() if serves(pods)}

    def await_serving(self, name: str, count: int, timeout: float = 300) -> None:
        """Wait until exactly so many replicas serve and nothing is on its way."""
        path = f"{RESOURCES}/{name}"

        def complete() -> bool:
            found = self.cluster.api("GET", path)
            conditions = {each["type"]: each for each in found.get("status", {}).get("conditions", ())}
            current = found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]
            return current and conditions.get("Progressing", {}).get("reason") == "Complete"

        eventually(lambda: complete() and len(self.serving(name)) == count, timeout, f"{count} replicas of {name}")

    def requests(self) -> Counter[tuple[str, str, str]]:
        """Requests so far by program, verb and resource."""
        found: Counter[tuple[str, str, str]] = Counter()
        for program in PROGRAMS:
            for (metric, labels), value in scrape(self.cluster.processes[program]).samples.items():
                if metric == "covey_kube_requests_total":
                    pairs = dict(labels)
                    found[program.removeprefix("covey-"), pairs["verb"], pairs["resource"]] += int(value)
        return found

    def settled_requests(self, seconds: float = 5.0) -> Counter[tuple[str, str, str]]:
        """The same, once none has come for a while."""
        last, since = self.requests(), time.monotonic()
        end = since + 120
        while time.monotonic() - since < seconds and time.monotonic() < end:
            time.sleep(0.5)
            if (now := self.requests()) != last:
                last, since = now, time.monotonic()
        return last


def scrape(process: Process) -> Scrape:
    """The metrics of a process."""
    with urlopen(process.metrics_url) as page:
        return Scrape.parse(page.read().decode())


def serves(pods: Sequence[Pod]) -> bool:
    """All pods of a replica serve."""
    return len({pod.index for pod in pods if pod.serves}) == max(pod.size for pod in pods)


# Other load


@contextlib.contextmanager
def load(bench: Bench, per_second: float) -> Iterator[None]:
    """Ordinary pods that come and go through the same kube-scheduler."""
    end = threading.Event()
    names: list[str] = []

    def work() -> None:
        generator, number = random.Random(1), 0
        while not end.wait(1 / per_second):
            number += 1
            body = {
                "metadata": {"name": f"plain-{number}"},
                "spec": {
                    "schedulerName": "covey-scheduler",
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "job", "image": "registry.test/job:1"}],
                },
            }
            with contextlib.suppress(ApiError, OSError):
                bench.cluster.api("POST", PODS, body)
                names.append(body["metadata"]["name"])
                if len(names) > 100:
                    bench.cluster.api("DELETE", f"{PODS}/{names.pop(generator.randrange(len(names)))}")

    thread = threading.Thread(target=work, daemon=True)
    if per_second:
        thread.start()
    try:
        yield
    finally:
        end.set()
        if per_second:
            thread.join()
        for name in names:
            with contextlib.suppress(ApiError):
                bench.cluster.api("DELETE", f"{PODS}/{name}")


def fill(bench: Bench, count: int) -> None:
    """Resources of 12 pods each that run beside."""
    roles = [
        role("prefill", 2, size=2, topology={"required": "rack"}),
        role("decode", 4, size=2, topology={"required": "rack"}),
    ]
    concurrently(lambda number: bench.create(f"beside-{number}", roles, topology={"required": "block"}), range(count))
    concurrently(lambda number: bench.await_serving(f"beside-{number}", 6), range(count), threads=4)


class Kubelet:
    """Says of each bound pod that it is Ready, a fixed time after it was bound; a context manager."""

    def __init__(self, cluster: Cluster, seconds: float) -> None:
        self._cluster = cluster
        self._seconds = seconds
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        due: dict[str, tuple[float, str]] = {}
        done: set[str] = set()
        seen = 0
        with self._cluster.record(PODS) as recording:
            while not self._end.wait(0.02):
                events, times = recording.events[seen:], recording.times[seen:]
                seen += len(events)
                for (_, pod), at in zip(events, times, strict=False):
                    if pod["spec"].get("nodeName") and pod["metadata"]["uid"] not in done:
                        due.setdefault(pod["metadata"]["uid"], (at + self._seconds, pod["metadata"]["name"]))
                for uid, (at, name) in list(due.items()):
                    if at <= time.monotonic():
                        del due[uid]
                        done.add(uid)
                        self._start(uid, name)

    def _start(self, uid: str, name: str) -> None:
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        body = {"metadata": {"uid": uid}, "status": status}
        with contextlib.suppress(ApiError):
            self._cluster.api("PATCH", f"{PODS}/{name}/status", body, patch="strategic")


# The figures


def scale(bench: Bench, times: int) -> None:
    """Growth by one replica, of one pod and of four."""
    for size in (1, 4):
        roles = [role("prefill", 2), role("decode", 2, size=size, topology={"required": "rack"})]
        bench.create("grows", roles, topology={"required": "block"})
        bench.await_serving("grows", 4)
        found = []
        for _ in range(times):
            with bench.cluster.record(f"{PODS}?labelSelector=covey.dev%2Finference%3Dgrows") as recording:
                seen = len(recording.events)
                began = time.monotonic()
                bench.change("grows", roles=[roles[0], {**roles[1], "replicas": 3}])

                def bound(events: list[tuple[str, Json]], seen: int = seen, size: int = size) -> bool:
                    nodes = {pod["metadata"]["uid"] for _, pod in events[seen:] if pod["spec"].get("nodeName")}
                    return len(nodes) >= size

                recording.wait(bound, 60)
                found.append(time.monotonic() - began)
            bench.await_serving("grows", 5)
            bench.change("grows", roles=roles)
            bench.await_serving("grows", 4)
        bench.tell(f"scale-up by one replica of {size}, patch -> bound, {times} times", quantiles(found))
        bench.delete("grows")


def quantiles(found: Sequence[float]) -> str:
    """p50, p99 and the most, in milliseconds."""
    cut = statistics.quantiles(found, n=100, method="inclusive") if len(found) > 1 else [found[0]] * 99
    return f"p50 {1000 * cut[49]:.0f} ms, p99 {1000 * cut[98]:.0f} ms, max {1000 * max(found):.0f} ms"


#: Roles of 64 pods: replicas, size, minimum.
SHAPES: Final = {"prefill": (8, 4, 2), "decode": (32, 1, 8)}


def rollout(bench: Bench) -> None:
    """New images for all roles, with several budgets."""
    for budget in ({}, {"maxSurge": "25%"}, {"maxSurge": 0, "maxUnavailable": "25%"}):

        def roles(image: int, budget: Json = budget) -> list[Json]:
            return [
                role(name, count, image=image, size=size, minReplicas=least, **({"update": budget} if budget else {}))
                for name, (count, size, least) in SHAPES.items()
            ]

        bench.create("rolls", roles(1))
        total = sum(count for count, _, _ in SHAPES.values())
        bench.await_serving("rolls", total)
        with bench.cluster.record(f"{PODS}?labelSelector=covey.dev%2Finference%3Drolls") as recording:
            old = {pod["metadata"]["labels"]["covey.dev/revision"] for _, pod in recording.events}
            began = time.monotonic()
            bench.change("rolls", roles=roles(2))
            bench.await_serving("rolls", total, 1200)
            seconds = time.monotonic() - began
            found = {name: History(name, old).play(recording.events) for name in SHAPES}
        told = ", ".join(f"{key} {value}" for key, value in budget.items()) or "default budget"
        for name, (count, _, least) in SHAPES.items():
            history = found[name]
            bench.tell(
                f"rollout of 64 pods, {told}: {name} {count}, minimum {least}",
                f"serving >= {history.fewest} ({history.fewest / least:.2f} of the minimum, "
                f"{history.fewest / count:.2f} of wanted); {history.waves} waves, at least {bound(count, least, budget)}",
            )
        bench.tell(f"rollout of 64 pods, {told}", f"{seconds:.1f} s")
        bench.delete("rolls")


class History:
    """One role during a rollout."""

    def __init__(self, role: str, old: set[str]) -> None:
        self._role = role
        self._old = old
        self.fewest = 1 << 30
        self.waves = 0

    def play(self, events: Sequence[tuple[str, Json]]) -> History:
        """Take all events in their order."""
        pods: dict[str, Pod] = {}
        wave: dict[Replica, int] = {}
        for number, (kind, found) in enumerate(events):
            pod = read_pod(found)
            if pod.replica is None or pod.replica.side.role != self._role:
                continue
            pods.pop(pod.uid, None)
            if kind != "DELETED":
                pods[pod.uid] = pod
            there = by_replica(iter(pods.values()))
            if number + 1 < len(events) and number < self._first(events):
                continue
            serving = {replica for replica, members in there.items() if serves(members)}
            self.fewest = min(self.fewest, len(serving))
            if pod.labels["covey.dev/revision"] not in self._old and pod.replica not in wave:
                wave[pod.replica] = 1 + max((wave.get(each, 0) for each in serving), default=0)
        self.waves = max(wave.values(), default=0)
        return self

    def _first(self, events: Sequence[tuple[str, Json]]) -> int:
        """How many events say what was there at the beginning."""
        return sum(
            1
            for kind, pod in events
            if kind == "ADDED" and pod["metadata"]["labels"]["covey.dev/revision"] in self._old
        )


def bound(wanted: int, least: int, budget: Json) -> int:
    """The lower bound of waves of a role alone (derived in ``covey.rollout.window``)."""

    def share(value: Any, *, up: bool) -> int:
        if isinstance(value, int):
            return value
        part = int(value.removesuffix("%")) * wanted
        return -(-part // 100) if up else part // 100

    surge, missing = share(budget.get("maxSurge", 1), up=True), share(budget.get("maxUnavailable", 0), up=False)
    ceiling, floor = wanted + surge, max(wanted - (missing or (not surge)), least)
    ready = waves = 0
    while ready < wanted:
        keep = 0 if ready >= floor else max(1 if ceiling > 1 else 0, floor - ready)
        ready, waves = min(wanted, ceiling - keep), waves + 1
    return waves


def death(bench: Bench, times: int) -> None:
    """Nodes that go in several ways, each with one pod of a replica of four."""
    ways: dict[str, Callable[[str], object]] = {
        "deleted": lambda name: bench.cluster.delete_nodes([name]),
        "not ready, out of service": lambda name: _out_of_service(bench, name),
        "not ready": bench.cluster.fail_node,
    }
    manifests = {each["metadata"]["name"]: each for each in _NODES.manifests()}
    for way, strike in ways.items():
        bench.create("loses", [role("prefill", 2), role("decode", 2, size=4, gpus=8, topology={"required": "rack"})])
        bench.await_serving("loses", 4)
        found: list[float] = []
        for _ in range(times):
            victim = next(pod for pod in bench.pods("loses") if pod.replica and pod.replica.side.role == "decode")
            began = time.monotonic()
            strike(victim.node)

            def again(victim: Pod = victim) -> bool:
                pods = [pod for pod in bench.pods("loses") if pod.node != victim.node]
                return sum(serves(each) for each in by_replica(iter(pods)).values()) == 4

            try:
                eventually(again, 150)
                found.append(time.monotonic() - began)
            except NotReachedError:
                break
            finally:
                with contextlib.suppress(ApiError):
                    bench.cluster.delete_nodes([victim.node])
                bench.cluster.api("POST", "/api/v1/nodes", manifests[victim.node])
        bench.tell(
            f"node {way} -> replica of 4 serving again, {times} times",
            quantiles(found) if len(found) == times else "not within 150 s",
        )
        bench.delete("loses")


def _out_of_service(bench: Bench, name: str) -> None:
    bench.cluster.fail_node(name)
    taints = bench.cluster.api("GET", f"/api/v1/nodes/{name}")["spec"].get("taints", [])
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    bench.cluster.api("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": [*taints, taint]}})


def requests(bench: Bench) -> None:
    """What one step costs the API server."""
    first = [role("prefill", 2), role("decode", 2)]
    bench.create("asks", first)
    bench.await_serving("asks", 4)

    def told(what: str, step: Callable[[], object], count: int) -> None:
        before = bench.settled_requests()
        step()
        bench.await_serving("asks", count)
        spent = bench.settled_requests() - before
        by_program = Counter[str]()
        for (program, _, _), number in spent.items():
            by_program[program] += number
        parts = ", ".join(f"{verb} {kind} {number}" for (_, verb, kind), number in sorted(spent.items()))
        sums = ", ".join(f"{program} {number}" for program, number in sorted(by_program.items()))
        bench.tell(f"requests for {what}", f"{spent.total()} ({sums}): {parts}")

    third = [first[0], {**first[1], "replicas": 3}]
    told("a scale-up by one replica", lambda: bench.change("asks", roles=third), 5)
    told("a scale-down by one replica", lambda: bench.change("asks", roles=first), 4)
    one = [{**first[0], "replicas": 1}, {**first[1], "replicas": 1}]
    bench.change("asks", roles=one)
    bench.await_serving("asks", 2)
    told("a rollout of one replica", lambda: bench.change("asks", roles=[one[0], role("decode", 1, image=2)]), 2)

    def lose() -> None:
        pod = next(pod for pod in bench.pods("asks") if pod.node)
        bench.cluster.api("DELETE", f"{PODS}/{pod.name}")
        eventually(lambda: pod.uid not in {each.uid for each in bench.pods("asks")})

    told("a lost pod", lose, 2)
    bench.delete("asks")


def rest(bench: Bench, count: int, seconds: float) -> None:
    """The operator with many resources that want nothing."""
    roles = [role("prefill", 2, gpus=1), role("decode", 2, gpus=1)]
    began = time.monotonic()
    concurrently(lambda number: bench.create(f"rests-{number}", roles), range(count))
    path = f"{RESOURCES}?resourceVersion=0"

    def complete() -> bool:
        found = [
            each for each in bench.cluster.api("GET", path)["items"] if each["metadata"]["name"].startswith("rests")
        ]
        reasons = Counter(
            condition["reason"]
            for each in found
            for condition in each.get("status", {}).get("conditions", ())
            if condition["type"] == "Progressing"
        )
        assert reasons["Complete"] == count, str(reasons)
        return True

    eventually(complete, 1200)
    bench.tell(f"{count} resources of 4 pods, created to all Ready", f"{time.monotonic() - began:.1f} s")
    bench.settled_requests(10)
    before, cpu = bench.requests(), cpu_seconds(bench.cluster)
    time.sleep(seconds)
    spent = bench.requests() - before
    used = {name: value - cpu[name] for name, value in cpu_seconds(bench.cluster).items()}
    for program in PROGRAMS:
        asked = sum(number for (name, _, _), number in spent.items() if name == program.removeprefix("covey-"))
        memory = resident(bench.cluster.processes[program].pid)
        bench.tell(
            f"{program} with {count} resources at rest, {seconds:.0f} s",
            f"{memory:.0f} MB, {used[program]:.2f} s of processor time, {60 * asked / seconds:.0f} requests a minute",
        )
    concurrently(lambda number: bench.cluster.api("DELETE", f"{RESOURCES}/rests-{number}"), range(count))


def resident(pid: int) -> float:
    """Megabytes of a process."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) / 1024


_NODES = Nodes(blocks=5, racks=8, nodes=16)


def begin(cluster: Cluster, nodes: Nodes) -> None:
    """Start what places pods, and make the namespace."""
    cluster.start_all(nodes)
    cluster.ensure("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    eventually(lambda: cluster.api("GET", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"))


def main() -> int:
    """Take the figures and print a table, and JSON when asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=FIGURES, action="append", help="repeatable; all by default")
    parser.add_argument("--times", type=int, default=200, help="scale-ups; deaths are a tenth of it")
    parser.add_argument("--blocks", type=int, default=_NODES.blocks, help="of 128 nodes")
    parser.add_argument("--beside", type=int, default=50, help="resources of 12 pods that run beside")
    parser.add_argument("--load", type=float, default=5.0, help="ordinary pods a second that come and go")
    parser.add_argument("--loading", type=float, default=5.0, help="seconds from bound to Ready in a rollout")
    parser.add_argument("--resources", type=int, default=500, help="at rest")
    parser.add_argument("--seconds", type=float, default=60.0, help="of rest")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    nodes = Nodes(blocks=options.blocks, racks=_NODES.racks, nodes=_NODES.nodes)
    wanted = options.only or FIGURES
    print(describe_machine())
    print(
        f"{len(nodes)} nodes, {options.beside} resources beside, {options.load:g} ordinary pods a second; load "
        f"{os.getloadavg()[0]:.1f}\n",
        flush=True,
    )
    rows: list[tuple[str, str]] = []
    if set(wanted) != {"rollout"}:
        with Cluster(max_inflight=2000) as cluster:
            begin(cluster, nodes)
            bench = Bench(cluster, rows)
            if "requests" in wanted:
                requests(bench)
            if {"scale", "death"} & set(wanted):
                fill(bench, options.beside)
                with load(bench, options.load):
                    if "scale" in wanted:
                        scale(bench, options.times)
                    if "death" in wanted:
                        death(bench, max(2, options.times // 10))
                concurrently(lambda number: bench.delete(f"beside-{number}"), range(options.beside), threads=4)
            if "rest" in wanted:
                rest(bench, options.resources, options.seconds)
    if "rollout" in wanted:
        with Cluster(max_inflight=2000, kwok=False) as cluster:
            begin(cluster, nodes)
            with Kubelet(cluster, options.loading):
                rollout(Bench(cluster, rows))
    if options.json:
        options.json.write_text(json.dumps(dict(rows), indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

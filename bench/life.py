"""What happens to a deployment in its life, in figures: growth, rollouts, losses, and what rest costs.

One control plane with kwok's nodes, all of Covey's processes with their own rights, and other load meanwhile: resources
that run, and ordinary pods that come and go. ``--only`` names the figures; nothing is asserted.

scale       Patch of one role's replicas by one, to the new replica bound.
rollout     New images of all roles of 64 pods: the fewest replicas that served of each role, over the minimum and over
            what is wanted, and waves. The wave of a new replica is one more than the highest of those that served when
            it was created, so the most is how often a model had to be loaded one after the other. Lower bound: the
            docstring of ``covey.rollout.model``. A control plane of its own, where a pod is Ready a fixed time after it
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
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from kubernetes.client import ApiException

from bench.beside import Kubelet, Load, fill
from bench.machine import describe_machine
from bench.native import cpu_seconds
from bench.rolled import rollout
from bench.stage import NAMESPACE, PODS, PROGRAMS, RESOURCES, Bench, Json, role, serves
from localcluster import Cluster, Nodes, NotReachedError, concurrently, eventually
from soak.facts import Pod, by_replica

FIGURES: Final = ("scale", "rollout", "death", "requests", "rest")


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
                with contextlib.suppress(ApiException):
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
                with Load(bench, options.load):
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

"""A rollout on a cluster that is exactly full, alone and while a rival waits for the nodes that it frees.

4 prefill and 2 decode replicas of a whole node each, minimum 1 + 1, on six nodes of kwok, where engines are Ready at once; the
rival is a resource of 1 + 1 that finds no room.  The clock runs from the change of the images until all six are new and
Ready; meanwhile every state is seen.  It fails where a rollout does not end, the rival gets a node of the resource, or more
is missing than the budget lets be missing.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from bench.life import begin
from bench.machine import describe_machine
from bench.stage import PODS, Bench, Json, role
from localcluster import Cluster, Nodes, eventually
from soak.facts import read_pod

ROLES: Final = {"prefill": 4, "decode": 2}
#: Ready at every moment: the rollout takes one replica of a role away at a time, as no node is free for another.
LEAST: Final = {name: count - 1 for name, count in ROLES.items()}


def roles(image: int, counts: dict[str, int]) -> list[Json]:
    """Roles of whole nodes, all of one image."""
    return [role(name, count, gpus=8, image=image, minReplicas=1) for name, count in counts.items()]


def measure(bench: Bench, *, rival: bool, patience: float) -> dict[str, Any]:
    """One rollout.

    Args:
        bench: the cluster.
        rival: whether another resource waits.
        patience: seconds after which a rollout counts as one that hangs.
    """
    bench.create("rolls", roles(1, ROLES))
    bench.await_serving("rolls", sum(ROLES.values()))
    if rival:
        bench.create("rival", roles(1, dict.fromkeys(ROLES, 1)))
        eventually(lambda: len(bench.pods("rival")) == 2, 60)
    with bench.cluster.record(PODS) as recording:
        began = time.monotonic()
        bench.change("rolls", roles=roles(2, ROLES))
        end = began + patience
        while time.monotonic() < end and not _is_done(bench):
            time.sleep(0.05)
        seconds = time.monotonic() - began
        events = list(recording.events)
    taken = sum(bool(pod.node) for pod in bench.pods("rival")) if rival else 0
    fewest = _fewest(events)
    problems = [f"fewer than {LEAST[name]} of {name} were Ready" for name in ROLES if fewest[name] < LEAST[name]]
    problems += [f"{taken} pods of the rival are bound"] if taken else []
    problems += [] if seconds < patience else [f"not done in {patience:g} s"]
    for name in ["rival", "rolls"] if rival else ["rolls"]:
        bench.delete(name)
    title = "with a rival" if rival else "alone"
    return {"case": title, "seconds": round(seconds, 1), "fewestReady": fewest, "problems": problems}


def _is_done(bench: Bench) -> bool:
    found = bench.cluster.api("GET", f"{PODS}?labelSelector=covey.dev%2Finference%3Drolls")["items"]
    new = [pod for pod in found if pod["spec"]["containers"][0]["image"].endswith(":2")]
    return sum(read_pod(pod).ready for pod in new) == sum(ROLES.values())


def _fewest(events: Iterable[tuple[str, Json]]) -> dict[str, int]:
    """The fewest Ready replicas of each role at any moment of the rollout."""
    ready: dict[str, str] = {}
    fewest, complete = dict(ROLES), False
    for kind, body in events:
        pod = read_pod(body)
        if pod.labels.get("covey.dev/inference") != "rolls":
            continue
        ready.pop(pod.uid, None)
        if kind != "DELETED" and pod.ready and not pod.going:
            ready[pod.uid] = pod.labels["covey.dev/role"]
        counts = Counter(ready.values())
        complete = complete or counts == ROLES
        if complete:
            fewest = {name: min(count, counts[name]) for name, count in fewest.items()}
    return fewest


def main() -> int:
    """Print the figures, as text and JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patience", type=float, default=300.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with Cluster() as cluster:
        begin(cluster, Nodes(nodes=sum(ROLES.values())))
        bench = Bench(cluster)
        results = [measure(bench, rival=rival, patience=options.patience) for rival in (False, True)]
    print(describe_machine())
    for result in results:
        fewest = ", ".join(f"{name} {count}" for name, count in result["fewestReady"].items())
        print(
            f"rollout of 4 + 2 whole nodes on 6, {result['case']:<14}{result['seconds']:>7} s, Ready >= {fewest}",
            end="",
        )
        print(f"  {'; '.join(result['problems'])}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=2))
    return int(any(result["problems"] for result in results))


if __name__ == "__main__":
    raise SystemExit(main())

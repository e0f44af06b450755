"""What Kopf's watch costs for each event, and how soon it is heard again after trouble: decision 14. Nothing is asserted.

Resources on a real API server are written again and again; Kopf, in the operator's wiring and with its session, fills the
stores. A reflector on the same resources is beside it in the same run: the way before. Then the API server is killed and
started, and the watches are cut behind a proxy: how long after each does the store show what was written meanwhile?
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from types import SimpleNamespace
from typing import Any, cast

import uvloop

from bench.machine import describe_machine
from covey.kube import resources
from covey.kube.client import Client
from covey.kube.connection import load
from covey.kube.reflector import Reflector
from covey.operator.model.objects import Inference, read_inference_text, read_role_scaler, read_topology
from covey.operator.observe.caches import Caches
from covey.operator.observe.informer import Informer
from covey.operator.process.kopf_runner import KopfRunner
from localcluster import Cluster
from soak.proxy import Proxy, proxied_kubeconfig

_KIND = resources.DISAGGREGATED_INFERENCES


def resource(name: str) -> dict[str, Any]:
    """Two roles with templates of some 2 kB, as engines have."""
    variables = [{"name": f"VARIABLE_{number}", "value": "value"} for number in range(20)]
    container = {"name": "engine", "image": "example.com/engine:1", "env": variables}
    roles = [{"name": each, "template": {"spec": {"containers": [container]}}} for each in ("prefill", "decode")]
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"roles": roles}}


class Watching:
    """Kopf as the operator runs it, alone."""

    def __init__(self, client: Client, connection: Any) -> None:
        self.inferences = Informer(_KIND, read_inference_text)
        others = (
            Informer(resources.ROLE_SCALERS, read_role_scaler),
            Informer(resources.CLUSTER_TOPOLOGIES, read_topology),
        )
        self.informers = (self.inferences, *others)
        caches = SimpleNamespace(
            inferences=self.inferences,
            scalers=others[0],
            topologies=others[1],
            informers=self.informers,
            deaf=asyncio.Event(),
        )
        self.events = 0
        self.inferences.subscribe(lambda *_: self._count())
        self.runner = KopfRunner(client, connection, (), cast(Caches, caches), lambda: None)

    def _count(self) -> None:
        self.events += 1


async def until(reached: Any) -> float:
    """Seconds until something is so."""
    begun = time.perf_counter()
    while not reached():  # noqa: ASYNC110 - stores that Kopf fills
        await asyncio.sleep(0.002)
    return time.perf_counter() - begun


async def write(client: Client, number: int, rounds: int) -> float:
    """Write every resource so many times; processor time that this took here."""
    begun = time.process_time()
    for turn in range(rounds):
        for each in range(number):
            body = {"metadata": {"annotations": {"example.com/turn": f"{turn}-{time.time_ns()}"}}}
            await client.merge_patch(_KIND, f"r-{each}", "default", body)
    return time.process_time() - begun


async def measure_cost(client: Client, connection: Any, number: int, rounds: int) -> None:
    """Processor time for each event: with Kopf, with a reflector, and of the writes alone."""
    alone = await write(client, number, rounds)
    reflector = Reflector(client, _KIND, Inference)
    task = asyncio.create_task(reflector.run())
    await reflector.synced.wait()
    with_reflector = await write(client, number, rounds)
    task.cancel()
    watching = Watching(client, connection)
    task = asyncio.create_task(watching.runner.run())
    await watching.inferences.synced.wait()
    watching.events = 0
    with_kopf = await write(client, number, rounds)
    await until(lambda: watching.events >= number * rounds)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    events = number * rounds
    for name, cost in (("reflector", with_reflector - alone), ("Kopf", with_kopf - alone)):
        print(f"  {name:10} {1000 * cost / events:6.2f} ms of processor time an event, of {events}")


async def measure_recovery(cluster: Cluster, proxy: Proxy, runs: int) -> None:
    """Seconds until the store shows a resource that was made in the dark."""
    server = cluster.processes["kube-apiserver"]
    connection = await load(str(proxied_kubeconfig(cluster, proxy, "covey-operator")))
    direct = await load(str(cluster.kubeconfig))
    async with (
        Client(connection, user_agent="bench", connections=0) as watched,
        Client(direct, user_agent="bench", field_manager="bench") as client,
    ):
        watching = Watching(watched, connection)
        task = asyncio.create_task(watching.runner.run())
        await watching.inferences.synced.wait()
        found: dict[str, list[float]] = {"watches cut": [], "watches cut, then 410": [], "API server killed": []}
        for run in range(runs):
            for number, (what, times) in enumerate(found.items()):
                name = f"dark-{run}-{number}"
                if what == "API server killed":
                    await asyncio.to_thread(server.restart, kill=True)
                else:
                    proxy.trouble.expired = 1.0 if "410" in what else 0.0
                    proxy.trouble.blind = True
                    proxy.cut_watches()
                    await asyncio.sleep(1)
                    proxy.trouble.blind = False
                await client.create(_KIND, resource(name))
                times.append(await until(lambda key=("default", name): watching.inferences.get(key) is not None))
                proxy.trouble.clear()
                proxy.cut_watches()
                await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    for what, times in found.items():
        print(f"  {what:24} {statistics.median(times):5.2f} s median, {max(times):5.2f} s most, of {len(times)}")


async def main(options: argparse.Namespace) -> None:
    """Print everything."""
    with Cluster() as cluster:
        cluster.install_rbac()
        connection = await load(str(cluster.kubeconfig))
        async with Client(connection, user_agent="bench", field_manager="bench", connections=0) as client:
            for each in range(options.resources):
                await client.create(_KIND, resource(f"r-{each}"))
            for _ in range(options.turns):
                await measure_cost(client, connection, options.resources, options.rounds)
        print("from when it can be heard again:")
        with Proxy(cluster.server, cluster.files.authority, random.Random(1)) as proxy:
            await measure_recovery(cluster, proxy, options.runs)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--resources", type=int, default=100, help="resources (100)")
    parser.add_argument("--rounds", type=int, default=10, help="writes of each (10)")
    parser.add_argument("--turns", type=int, default=3, help="measurements of the cost (3)")
    parser.add_argument("--runs", type=int, default=5, help="troubles of each kind (5)")
    print(describe_machine())
    uvloop.run(main(parser.parse_args()))

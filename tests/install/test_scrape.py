"""A real Prometheus finds both processes by what the chart's PodMonitor says, and stores what they show."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from cluster.workbench import name_of
from install.chart import NAMESPACE
from install.panels.prometheus import Prometheus, Scraped
from install.test_installation import apply_example, await_covey
from localcluster import Cluster, eventually
from localcluster.binaries import ensure_tool
from localcluster.probe import answers

pytestmark = pytest.mark.usefixtures("covey")


def targets(cluster: Cluster) -> dict[str, str]:
    """Address of each endpoint that the PodMonitor selects, by pod: what the Prometheus operator would find."""
    path = f"/apis/monitoring.coreos.com/v1/namespaces/{NAMESPACE}/podmonitors/covey"
    spec = cluster.api("GET", path)["spec"]
    wanted = spec["selector"]["matchLabels"].items()
    [endpoint] = spec["podMetricsEndpoints"]
    found = {}
    for pod in cluster.api("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]:
        if wanted <= pod["metadata"]["labels"].items():
            ports = [port for each in pod["spec"]["containers"] for port in each["ports"]]
            [number] = [port["containerPort"] for port in ports if port["name"] == endpoint["port"]]
            file = cluster.directory / "pods" / name_of(pod) / "addresses.json"
            if file.exists():  # its processes run
                found[name_of(pod)] = json.loads(file.read_text())[str(number)]
    return found


@pytest.fixture
def prometheus(cluster: Cluster, tmp_path: Path) -> Iterator[Prometheus]:
    """Scrapes what the PodMonitor selects."""
    await_covey(cluster)
    found = eventually(lambda: len(them := targets(cluster)) == 2 and them, 60, "both pods are found")
    spec = cluster.api("GET", f"/apis/monitoring.coreos.com/v1/namespaces/{NAMESPACE}/podmonitors/covey")["spec"]
    honor = spec["podMetricsEndpoints"][0].get("honorLabels", False)
    scraped = [Scraped(at, {"pod": pod}) for pod, at in found.items()]
    # What the Prometheus operator calls the job of a PodMonitor.
    with Prometheus(tmp_path, f"{NAMESPACE}/covey", scraped, seconds=1, honor_labels=honor) as running:
        yield running


def test_prometheus_scrapes_both_processes(cluster: Cluster, prometheus: Prometheus) -> None:
    apply_example(cluster)

    def seen() -> bool:
        up = {each["metric"]["pod"].rsplit("-", 2)[0] for each in prometheus.ask("up == 1")}
        assert up == {"covey-operator", "covey-scheduler"}
        ready = prometheus.ask('sum(covey_workload_replicas_ready{name="llama"}) by (namespace, role)')
        found = {(each["metric"]["namespace"], each["metric"]["role"]): each["value"][1] for each in ready}
        assert {("default", "prefill"): "4", ("default", "decode"): "2"}.items() <= found.items()
        [admitted] = prometheus.ask("sum(covey_gang_created_to_admitted_seconds_count)")
        assert int(admitted["value"][1]) >= 1
        assert not prometheus.ask('ALERTS{alertstate="firing"}')
        return len(prometheus.ask("leader_election_master_status == 1")) == 2

    eventually(seen, 90, "both are scraped, and the labels are Covey's own")


@pytest.mark.parametrize("component", ["operator", "scheduler"])
def test_promtool_finds_nothing_to_say(cluster: Cluster, component: str) -> None:
    await_covey(cluster)
    found = eventually(lambda: len(them := targets(cluster)) == 2 and them, 60, "both pods are found")
    [at] = [at for pod, at in found.items() if component in pod]

    def text() -> bytes:
        with urlopen(f"http://{at}/metrics") as answer:
            return bytes(answer.read())

    metrics = eventually(lambda: answers(f"http://{at}/metrics") and text(), 90, "it is scraped")
    assert metrics.count(b"covey_") > 100
    done = subprocess.run(
        [str(ensure_tool("promtool")), "check", "metrics"], input=metrics, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

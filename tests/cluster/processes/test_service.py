"""The extender behind a Service: a real kube-scheduler over mutual TLS, renewals, and callers that get nothing."""

from __future__ import annotations

import contextlib
import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from attached import GUARD, HOST, Attachment, service_flags
from authority import Authority, Mounted
from cluster.scraping import await_scrape, scrape
from localcluster import Cluster, Process, eventually
from localcluster.cluster import NAMESPACE
from scheduler_trees import Bench, Role, node_of

AddNodes = Callable[..., list[str]]
Json = dict[str, Any]
LABEL = "scheduling.covey.dev/extender"

#: A preemption call as kube-scheduler sends it, without candidates.
PREEMPT = b'{"Pod": {"metadata": {}}, "NodeNameToMetaVictims": {}}'


@dataclass
class Service:
    """The scheduler process as a Service has it, its files, and those of kube-scheduler."""

    process: Process
    authority: Authority
    server: Mounted
    caller: Mounted

    def connect(self, context: ssl.SSLContext | None = None) -> http.client.HTTPSConnection:
        """A new connection, with kube-scheduler's own certificate unless another context is given."""
        return connection(self.process, context or self.caller.client_context())


def connection(process: Process, context: ssl.SSLContext) -> http.client.HTTPSConnection:
    port = int(process.url.rpartition(":")[2])
    return http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)


def ask(connected: http.client.HTTPSConnection, path: str, body: bytes) -> tuple[int, bytes]:
    with contextlib.closing(connected):
        connected.request("POST", path, body)
        answer = connected.getresponse()
        return answer.status, answer.read()


@pytest.fixture(scope="module")
def service(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    try:
        made = Attachment(cluster, tmp_path_factory.mktemp("tls"), caller="kube-scheduler")
        assert f"https://{HOST}:" in made.printed()
        assert f"https://{GUARD}:" in made.printed()
        cluster.start_scheduler(yaml.safe_dump(made.local()))
        yield Service(made.process, made.authority, made.server, made.caller)
    finally:
        cluster.forget("kube-scheduler", "covey-scheduler")


@pytest.fixture
def bench(cluster: Cluster, namespace: str) -> Bench:
    return Bench(cluster, namespace)


def test_caller_without_a_certificate_of_the_authority_gets_nothing(service: Service, tmp_path: Path) -> None:
    other = Mounted(tmp_path / "other", Authority("other"), "kube-scheduler").client_context()
    other.load_verify_locations(service.caller.authority)
    for context in (ssl.create_default_context(cafile=service.caller.authority), other):
        for path in ("/guard/filter", "/healthz", "/readyz"):
            with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
                ask(service.connect(context), path, b"{}")
    with pytest.raises((urllib.error.URLError, ConnectionError), match=r"reset|closed|refused|EOF"):
        urllib.request.urlopen(f"{service.process.url}/healthz", timeout=30)
    denied = scrape(service.process)("covey_extender_requests_total", result="denied", verb="connect")
    assert denied >= 7


def test_gangs_and_strangers_are_bound_over_mutual_tls_across_renewals_and_a_new_authority(
    bench: Bench, nodes: AddNodes, service: Service
) -> None:
    nodes(nodes=5)
    bench.unit("gang", Role("decode", size=2)).wait_bound(2)
    bench.pod("stranger", gpus=1)
    eventually(lambda: node_of(bench.get("stranger")), describe="the stranger is bound")
    old = service.caller.client_context()
    new = Authority("new")
    # kube-scheduler reads its own certificate again, and the authority of others only when it starts.
    service.server.renew(service.authority, trusted=new.pem, days=3)
    service.caller.renew(new, trusted=service.authority.pem)
    wanted = service.server.certificate.read_bytes()
    reloads = "covey_extender_certificate_reloads_total"
    await_scrape(service.process, lambda seen: seen(reloads, result="success"), "the files are read again")
    with contextlib.closing(service.connect()) as connected:
        connected.connect()
        assert connected.sock.getpeercert(binary_form=True) == ssl.PEM_cert_to_DER_cert(wanted.decode())
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.HTTPException)):
        ask(service.connect(old), "/guard/preempt", PREEMPT)
    bench.unit("after", Role("decode", size=2)).wait_bound(2)


def test_replicas_when_two_are_ready_both_guard_and_one_wears_the_label(
    cluster: Cluster, service: Service, tmp_path: Path
) -> None:
    """A rolling update of two replicas can end: both are ready, and the label, for the barrier, follows the lease."""
    server = Mounted(tmp_path / "server", service.authority, "extender")
    own = Mounted(tmp_path / "caller", service.authority, "kube-scheduler").client_context()
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    names = ["replica-a", "replica-b"]
    container = {"name": "covey", "image": "registry.invalid/covey"}
    for name in names:  # both have been active once, and died
        spec = {"schedulerName": "nobody", "containers": [container], "serviceAccountName": "covey-scheduler"}
        cluster.api("POST", pods, {"metadata": {"name": name, "labels": {LABEL: "active"}}, "spec": spec})

    def labelled() -> list[str]:
        found = cluster.api("GET", f"{pods}?labelSelector={LABEL}%3Dactive")["items"]
        return sorted(each["metadata"]["name"] for each in found)

    def status(name: str) -> int:
        return ask(connection(cluster.processes[f"covey-{name}"], own), "/guard/preempt", PREEMPT)[0]

    try:
        for name in names:
            identity = (f"--pod-name={name}", f"--pod-namespace={NAMESPACE}")
            arguments = (*service_flags(server), *identity, "--leader-elect=true")
            cluster.start_covey("scheduler", *arguments, name=f"covey-{name}")  # returns when it is ready
            eventually(lambda: names[0] in labelled(), 60, "the first leads before the second comes")
        eventually(lambda: labelled() == names[:1], 60, lambda: str(labelled()))
        assert [status(name) for name in names] == [200, 200], "both guard"
        cluster.processes["covey-replica-a"].stop()
        eventually(lambda: labelled() == names[1:], 60, lambda: str(labelled()))
        eventually(lambda: status("replica-b") == 200)
    finally:
        cluster.forget(*(f"covey-{name}" for name in names if f"covey-{name}" in cluster.processes))
        for name in names:
            cluster.api("DELETE", f"{pods}/{name}?gracePeriodSeconds=0")

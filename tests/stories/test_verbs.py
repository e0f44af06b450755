"""What people type: ``covey scale``, ``covey rollout restart`` and ``covey logs``."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from authority import Authority, Mounted
from builders.manifests import role
from cluster.workbench import name_of, uids
from stage import Stage
from stage.play import run_covey


def covey(stage: Stage, *arguments: object, status: int = 0) -> str:
    """Run a command in the story's namespace; what it prints, errors too."""
    code, output = run_covey(stage, *map(str, arguments), "-n", stage.namespace)
    assert code == status, output
    return output


def together(name: str) -> dict[str, object]:
    return role(name, replicas=2, minReplicas=1, scaling={"mode": "Together"})


@pytest.fixture(autouse=True)
def node(stage: Stage) -> str:
    """Room for everything: these pods ask for nothing."""
    [name] = stage.nodes()
    return name


def test_scale_when_the_spec_has_the_number_changes_it_and_leaves_what_runs_alone(stage: Stage) -> None:
    stage.create(role("prefill", replicas=1), role("decode", replicas=2), replicas=2)
    before = uids(stage.ready(6))
    assert covey(stage, "scale", "llm", "decode=+1", "--dry-run") == (
        "llm: decode 2 -> 3 (dry run) in each of 2 units\n"
    )
    assert uids(stage.ready(6)) == before
    assert covey(stage, "scale", "llm", "decode=3") == "llm: decode 2 -> 3 in each of 2 units\n"
    assert before < uids(stage.ready(8))
    refusal = covey(stage, "scale", "llm", "router=1", status=2)
    assert "is no role of it; name one of prefill, decode" in refusal


def test_scale_when_the_number_is_below_the_minimum_is_refused_by_the_api_server(stage: Stage) -> None:
    stage.create(role("prefill"), role("decode", replicas=2, minReplicas=2))
    stage.ready(3)
    assert "minReplicas" in covey(stage, "scale", "llm", "decode=1", "--dry-run", status=1)


def test_scale_when_an_autoscaler_may_set_the_number_writes_the_role_scaler(stage: Stage) -> None:
    stage.create(role("prefill"), role("decode", scaling={"mode": "External"}))
    stage.ready(2)
    assert covey(stage, "scale", "llm", "decode=3") == "llm: decode 1 -> 3 over all units\n"
    stage.ready(4)
    assert stage.get("RoleScaler", "llm-decode")["spec"]["replicas"] == 3


def test_scale_when_roles_are_scaled_together_is_one_exchange(stage: Stage) -> None:
    stage.create(together("prefill"), together("decode"))
    stage.ready(4)
    assert "in force" in covey(stage, "scale", "llm", "prefill=-1", "decode=+1")
    stage.settle()
    assert (len(stage.pods(role="prefill")), len(stage.pods(role="decode"))) == (1, 3)


def test_rollout_restart_replaces_every_replica_of_the_named_role(stage: Stage) -> None:
    stage.create(role("prefill"), role("decode", replicas=2))
    before = {pod: uids(stage.pods(role=pod)) for pod in ("prefill", "decode") if stage.ready(3)}
    assert covey(stage, "rollout", "restart", "llm", "--role", "decode") == "llm restarted: decode\n"
    stage.ready(3)
    assert uids(stage.pods(role="prefill")) == before["prefill"]
    assert not uids(stage.pods(role="decode")) & before["decode"]
    assert len(covey(stage, "rollout", "history", "llm").splitlines()) == 3


def test_rollout_history_when_a_resource_is_scaled_keeps_the_numbers_of_its_revisions(stage: Stage) -> None:
    stage.create(role("decode"))
    stage.ready(1)
    for replicas in (2, 3, 2):
        covey(stage, "scale", "llm", f"decode={replicas}")
        stage.ready(replicas)
    covey(stage, "rollout", "restart", "llm")
    stage.ready(2)
    _, first, second = covey(stage, "rollout", "history", "llm").splitlines()
    assert [first.split()[0], second.split()[0]] == ["1", "2"]
    assert covey(stage, "rollout", "undo", "llm", "--to-revision", 1).startswith("llm goes back to revision 1 ")
    stage.ready(2)
    numbers = [line.split()[0] for line in covey(stage, "rollout", "history", "llm").splitlines()[1:]]
    assert numbers == ["2", "3"]


class Kubelet(BaseHTTPRequestHandler):
    """Two lines for each container that is asked for."""

    def do_GET(self) -> None:
        _, _, _, pod, container = self.path.partition("?")[0].split("/")
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"{container} loads\n{pod} serves".encode())

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def kubelet(stage: Stage, node: str, tmp_path: Path) -> Iterator[None]:
    """The node's kubelet, which answers for logs."""
    mounted = Mounted(tmp_path / "tls", Authority(), "kubelet")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Kubelet)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(mounted.certificate, mounted.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    endpoint = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": server.server_port}},
    }
    stage.cluster.api("PATCH", f"/api/v1/nodes/{node}/status", {"status": endpoint})
    yield
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.usefixtures("kubelet")
def test_logs_of_a_role_are_printed_behind_the_names_of_its_pods(stage: Stage) -> None:
    stage.create(role("prefill"), role("decode", replicas=2))
    stage.ready(3)
    names = sorted(name_of(pod) for pod in stage.pods(role="decode"))
    lines = covey(stage, "logs", "llm", "--role", "decode").splitlines()
    assert sorted(lines) == sorted(f"{name} {words}" for name in names for words in ("engine loads", f"{name} serves"))
    assert "no pod is chosen" in covey(stage, "logs", "llm", "--role", "router", status=1)

"""A metrics API for autoscalers (``custom.metrics.k8s.io``), behind the API server's aggregation, on loopback.

A load is shared by all that bear it; every pod that is asked about reports the share of its replica, or of its unit.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

from localcluster.cluster import Cluster
from localcluster.ports import HOST
from localcluster.waiting import eventually

Object = dict[str, Any]

API: Final = "custom.metrics.k8s.io/v1beta2"
#: Flags of a cluster whose autoscalers do not take minutes.
QUICK_AUTOSCALERS: Final[Mapping[str, Sequence[str]]] = {
    "kube-controller-manager": (
        "--horizontal-pod-autoscaler-sync-period=1s",
        "--horizontal-pod-autoscaler-initial-readiness-delay=1s",
        "--horizontal-pod-autoscaler-cpu-initialization-period=1s",
    )
}
#: Metrics that the tests of Covey itself use.
UNITS, REPLICAS = "load-of-units", "load-of-replicas"
SHARED: Final[Mapping[str, tuple[str, ...]]] = {UNITS: ("unit",), REPLICAS: ("unit", "replica")}


@dataclass
class Metrics:
    """The loads that the stand-in reports.

    Attributes:
        loads: by namespace and metric.
        asked: how often each was asked for.
        shared: metrics, and whom the pods of one role share their load among.
    """

    cluster: Cluster
    loads: dict[tuple[str, str], int] = field(default_factory=dict)
    asked: dict[tuple[str, str], int] = field(default_factory=dict)
    shared: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: SHARED)

    def values(self, namespace: str, metric: str, selector: str) -> list[Object]:
        """The values of all pods that a selector finds."""
        self.asked[namespace, metric] = self.asked.get((namespace, metric), 0) + 1
        path = f"/api/v1/namespaces/{namespace}/pods?labelSelector={quote(selector)}"
        pods = [pod for pod in self.cluster.api("GET", path)["items"] if _is_ready(pod)]
        keys = [f"covey.dev/{key}" for key in self.shared[metric]]
        bearers = {tuple(pod["metadata"]["labels"].get(key, "") for key in keys) for pod in pods}
        load = self.loads.get((namespace, metric), 0)
        return [_value(namespace, pod["metadata"]["name"], metric, 1000 * load // len(bearers)) for pod in pods]

    def await_rounds(self, namespace: str, metric: str, rounds: int) -> None:
        """Wait until an autoscaler has looked so many times more."""
        before = self.asked.get((namespace, metric), 0)
        eventually(lambda: self.asked.get((namespace, metric), 0) >= before + rounds, 120, f"{metric} is asked for")


@contextmanager
def serve_metrics(cluster: Cluster, shared: Mapping[str, tuple[str, ...]] = SHARED) -> Iterator[Metrics]:
    """Serve the API until the block ends."""
    metrics = Metrics(cluster, shared=shared)
    server = ThreadingHTTPServer((HOST, 0), _handler(metrics))
    server.socket = _tls(cluster).wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        _register(cluster, server.server_address[1])
        yield metrics
    finally:
        cluster.api("DELETE", _service("v1beta2.custom.metrics.k8s.io"))
        server.shutdown()
        thread.join()
        server.server_close()


def _register(cluster: Cluster, port: int) -> None:
    """The API server may not send anything to the address of an endpoint on loopback, but to a name."""
    service = {"metadata": {"name": "metrics"}, "spec": {"type": "ExternalName", "externalName": "localhost"}}
    cluster.api("POST", "/api/v1/namespaces/default/services", service)
    group, version = API.split("/")
    body = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{version}.{group}"},
        "spec": {
            "group": group,
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {"name": "metrics", "namespace": "default", "port": port},
        },
    }
    cluster.api("POST", _service(), body)

    def available() -> bool:
        status = cluster.api("GET", _service(f"{version}.{group}")).get("status", {})
        told = {each["type"]: each for each in status.get("conditions", ())}
        assert told.get("Available", {}).get("status") == "True", str(told)
        return True

    eventually(available, 60, "the metrics API is there")


def _service(name: str = "") -> str:
    path = "/apis/apiregistration.k8s.io/v1/apiservices"
    return f"{path}/{name}" if name else path


def _tls(cluster: Cluster) -> ssl.SSLContext:
    """The API server's own certificate, which is at hand; the API server is told not to look at it."""
    certificate = cluster.files.authority
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    return context


def _is_ready(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _value(namespace: str, pod: str, metric: str, thousandths: int) -> Object:
    return {
        "describedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod},
        "metric": {"name": metric},
        "timestamp": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "value": f"{thousandths}m",
    }


def _handler(metrics: Metrics) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            match unquote(url.path).strip("/").split("/"):
                case ["apis", *rest] if "/".join(rest) == API:
                    self._answer(_resources(metrics.shared))
                case ["apis", _, _, "namespaces", namespace, "pods", "*", metric]:
                    (selector,) = parse_qs(url.query)["labelSelector"]
                    items = metrics.values(namespace, metric, selector)
                    self._answer({"kind": "MetricValueList", "apiVersion": API, "metadata": {}, "items": items})
                case _:
                    self._answer({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}, 404)

        def _answer(self, body: Object, code: int = 200) -> None:
            content = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    return Handler


def _resources(metrics: Iterable[str]) -> Object:
    resource = {"singularName": "", "namespaced": True, "kind": "MetricValueList", "verbs": ["get"]}
    listed = [{"name": f"pods/{metric}", **resource} for metric in metrics]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": API, "resources": listed}

"""Fields that the API server adds to what it is sent (``pkg/apis/*/v1/defaults.go``, schemas of CRDs), and allocates."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache
from typing import Any, Final

from covey.api.crds import KINDS, definition
from covey.kube.resources import POD_DISRUPTION_BUDGETS, PODS, SERVICES

Json = dict[str, Any]
_ADDRESSES = itertools.count(1)
_TOLERATED: Final = [
    {"key": f"node.kubernetes.io/{what}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for what in ("not-ready", "unreachable")
]


def add_defaults(kind: str, body: Json) -> None:
    """Add to an object what nobody has said."""
    schema = _schemas().get(kind)
    if schema is not None:
        _fill_in(body, schema)
    _BY_KIND.get(kind, lambda _: None)(body)


@cache
def _schemas() -> Mapping[str, Json]:
    """The schemas of Covey's own kinds, by type."""
    found = {}
    for kind in KINDS:
        body = definition(kind)["spec"]
        [version] = body["versions"]
        found[f"{body['names']['kind']}.{version['name']}.{body['group']}"] = version["schema"]["openAPIV3Schema"]
    return found


def _fill_in(value: Any, schema: Json) -> None:
    if isinstance(value, dict):
        for key, inner in schema.get("properties", {}).items():
            if "default" in inner:
                value.setdefault(key, deepcopy(inner["default"]))
            if key in value:
                _fill_in(value[key], inner)
    elif isinstance(value, list):
        for each in value:
            _fill_in(each, schema.get("items", {}))


def _of_service(body: Json) -> None:
    spec = body.setdefault("spec", {})
    _fill(spec, type="ClusterIP", sessionAffinity="None", internalTrafficPolicy="Cluster")
    _fill(spec, ipFamilies=["IPv4"], ipFamilyPolicy="SingleStack")
    number = next(_ADDRESSES)
    spec.setdefault("clusterIP", f"10.96.{number // 250 % 250}.{number % 250}")
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    for port in spec.get("ports") or ():
        _fill(port, protocol="TCP", targetPort=port["port"])
    body.setdefault("status", {"loadBalancer": {}})


def _of_pod(body: Json) -> None:
    spec = body["spec"]
    if "status" in body:
        return
    _fill(spec, restartPolicy="Always", dnsPolicy="ClusterFirst", terminationGracePeriodSeconds=30)
    _fill(spec, securityContext={}, serviceAccount="default", serviceAccountName="default", enableServiceLinks=True)
    _fill(spec, priority=0, preemptionPolicy="PreemptLowerPriority", schedulerName="default-scheduler")
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *_TOLERATED]
    token = {"name": "kube-api-access", "projected": {"defaultMode": 420, "sources": []}}
    spec["volumes"] = [*(spec.get("volumes") or ()), token]
    for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
        _of_container(container)
    body["status"] = {"phase": "Pending", "qosClass": "BestEffort"}


def _of_container(container: Json) -> None:
    _fill(container, imagePullPolicy="IfNotPresent", resources={}, terminationMessagePolicy="File")
    _fill(container, terminationMessagePath="/dev/termination-log")
    resources = container["resources"]
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **resources.get("requests", {})}
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        if field := (variable.get("valueFrom") or {}).get("fieldRef"):
            field.setdefault("apiVersion", "v1")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            _fill(container[probe], timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3)
    container["volumeMounts"] = [*(container.get("volumeMounts") or ()), {"name": "kube-api-access", "mountPath": "/v"}]


def _of_budget(body: Json) -> None:
    body.setdefault("status", {"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0})


_BY_KIND: Final[Mapping[str, Callable[[Json], None]]] = {
    SERVICES.type: _of_service,
    PODS.type: _of_pod,
    POD_DISRUPTION_BUDGETS.type: _of_budget,
}


def _fill(found: Json, **values: Any) -> None:
    for key, value in values.items():
        found.setdefault(key, value)

"""A router that has its say in whether pods serve.

kwok makes every pod Ready as soon as it is bound, whatever its readiness gates. So a policy keeps it from that where a
pod's template has the annotation ``ASKED``, until the router has put ``ALLOWED`` on the pod.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, Self

from kubernetes.client import ApiException

from builders.manifests import Object
from cluster.workbench import Workbench, name_of, uid_of
from localcluster import eventually

ASKED: Final = "router.test/asked"
ALLOWED: Final = "router.test/allowed"
#: The readiness gate.
GATE: Final = "router.test/serves"
_API: Final = "/apis/admissionregistration.k8s.io/v1"
_KINDS: Final = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
_MAY_BE_READY: Final = (
    f"!has(object.metadata.annotations) || !('{ASKED}' in object.metadata.annotations)"
    f" || '{ALLOWED}' in object.metadata.annotations || !has(object.status.conditions)"
    " || !object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')"
)


class Router:
    """The router of one namespace, as a context manager."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._name = f"router-{bench.namespace}"

    def __enter__(self) -> Self:
        rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods/status"]}]
        policy = {
            "matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": _MAY_BE_READY, "message": "the router has not said so"}],
        }
        selector = {"matchLabels": {"kubernetes.io/metadata.name": self._bench.namespace}}
        binding = {
            "policyName": self._name,
            "validationActions": ["Deny"],
            "matchResources": {"namespaceSelector": selector},
        }
        for kind, spec in zip(_KINDS, (policy, binding), strict=True):
            body = {"metadata": {"name": self._name}, "spec": spec}
            self._bench.cluster.api("POST", f"{_API}/{kind}", body)
        eventually(self._holds, 60, "the policy is in force")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in _KINDS:
            self._bench.cluster.api("DELETE", f"{_API}/{each}/{self._name}")

    def allow(self, pods: Sequence[Object]) -> None:
        """These may serve."""
        for pod in pods:
            body = {"metadata": {"uid": uid_of(pod), "annotations": {ALLOWED: "yes"}}}
            self._bench.cluster.api("PATCH", self._bench.path("Pod", name_of(pod)), body)

    def say(self, pod: Object, *, serves: bool) -> None:
        """Set the readiness gate of a pod that runs."""
        found = self._bench.get("Pod", name_of(pod))
        others = [each for each in found["status"]["conditions"] if each["type"] != GATE]
        gate = {"type": GATE, "status": str(serves), "lastTransitionTime": "2026-01-01T00:00:00Z"}
        body = {"metadata": {"uid": uid_of(pod)}, "status": {"conditions": [*others, gate]}}
        self._bench.cluster.api("PATCH", f"{self._bench.path('Pod', name_of(pod))}/status", body)

    def _holds(self) -> bool:
        """A pod that was not allowed to cannot become Ready."""
        path = self._bench.path("Pod")
        pod: dict[str, Any] = {
            "metadata": {"name": "probe", "annotations": {ASKED: "yes"}},
            "spec": {
                "containers": [{"name": "main", "image": "registry.test/probe:1"}],
                "schedulingGates": [{"name": "router.test/never"}],
            },
        }
        try:
            self._bench.cluster.api("POST", path, pod)
        except ApiException as error:
            if error.status != 409:
                raise
        ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
        try:
            self._bench.cluster.api("PATCH", f"{path}/probe/status", ready)
        except ApiException as error:
            if "the router has not said so" not in str(error):
                raise
            self._bench.cluster.api("DELETE", f"{path}/probe")
            return True
        return False


def asks(role: Object) -> Object:
    """The role with pods that ask the router."""
    template = role["template"]
    annotations = {**template.get("metadata", {}).get("annotations", {}), ASKED: "yes"}
    metadata = {**template.get("metadata", {}), "annotations": annotations}
    spec = {**template["spec"], "readinessGates": [{"conditionType": GATE}]}
    return {**role, "template": {**template, "metadata": metadata, "spec": spec}}

"""A policy of a cluster that denies to lift gates, and with them pins."""

from __future__ import annotations

from typing import Any, Final

from kubernetes.client import ApiException

from localcluster import eventually
from scheduler_trees import Bench

Json = dict[str, Any]
POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
MARK: Final = "held-back"
WORDS: Final = "this team may not use GPUs before Monday"


class Policy:
    """Denies to lift the gate of every pod with a mark in one namespace."""

    def __init__(self, bench: Bench) -> None:
        self._cluster, self._bench = bench.cluster, bench
        self._name = f"deny-{bench.namespace}"

    def install(self) -> None:
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["pods"]}
        marked = f"has(object.metadata.labels) && '{MARK}' in object.metadata.labels"
        validation = {"expression": f"!({marked}) || has(object.spec.schedulingGates)", "message": WORDS}
        selector = {"matchLabels": {"kubernetes.io/metadata.name": self._bench.namespace}}
        spec = {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule], "namespaceSelector": selector},
            "validations": [validation],
        }
        binding = {"policyName": self._name, "validationActions": ["Deny"]}
        self._cluster.api("POST", POLICIES, self._named(spec))
        self._cluster.api("POST", BINDINGS, self._named(binding))
        eventually(self.denies, describe="the policy holds")

    def remove(self) -> None:
        for path in (POLICIES, BINDINGS):
            try:
                self._cluster.api("DELETE", f"{path}/{self._name}")
            except ApiException as error:
                if error.status != 404:
                    raise

    def _named(self, spec: Json) -> Json:
        return {"metadata": {"name": self._name}, "spec": spec}

    def denies(self) -> bool:
        """A policy takes a moment until the API server knows it."""
        path, name = self._bench.pods_path, "probe"
        body = {
            "metadata": {"name": name, "labels": {MARK: ""}},
            "spec": {"schedulingGates": [{"name": "example.com/x"}], "containers": [{"name": "c", "image": "x"}]},
        }
        self._cluster.api("POST", path, body)
        try:
            self._cluster.api("PATCH", f"{path}/{name}", [{"op": "remove", "path": "/spec/schedulingGates/0"}])
        except ApiException as error:
            return WORDS in str(error)
        finally:
            self._bench.delete(name)
        return False

"""Somebody rewrites what Covey has written: an admission policy, each time."""

from __future__ import annotations

from stage import Stage

NEVER_EARLY = "never-early"


def rewrite_services(stage: Stage) -> None:
    """Have a policy that lets no Service of this namespace publish pods that are not Ready."""
    api = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolic"
    path = "/spec/publishNotReadyAddresses"
    patch = (
        f"has(object.spec.publishNotReadyAddresses) ? [JSONPatch{{op: 'replace', path: '{path}', value: false}}] : []"
    )
    spec = {
        "matchConstraints": {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": stage.namespace}},
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["services"],
                }
            ],
        },
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
    }
    metadata = {"name": NEVER_EARLY}
    stage.cluster.api("POST", f"{api}ies", {"metadata": metadata, "spec": spec})
    stage.after(lambda: stage.cluster.delete(f"{api}ies/{NEVER_EARLY}"))
    stage.cluster.api("POST", f"{api}ybindings", {"metadata": metadata, "spec": {"policyName": NEVER_EARLY}})
    stage.after(lambda: stage.cluster.delete(f"{api}ybindings/{NEVER_EARLY}"))
    trial = {"metadata": {"name": "trial"}, "spec": {"clusterIP": "None", "publishNotReadyAddresses": True}}

    def works() -> bool:
        made = stage.cluster.api("POST", f"{stage.path('Service')}?dryRun=All", trial)
        return not made["spec"].get("publishNotReadyAddresses")

    stage.await_event(works, "the policy rewrites Services")


def test_service_when_a_policy_rewrites_a_field_each_time_is_told_by_name_and_written_less_and_less(
    stage: Stage,
) -> None:
    """It was written in each pass, and the resource said for ever that it starts."""
    stage.nodes(nodes=2)
    rewrite_services(stage)
    stage.create()
    stage.ready(6)
    assert stage.condition("Progressing")[:2] == ("True", "Complete")
    status, reason, message = stage.condition("Degraded")
    assert (status, reason) == ("True", "FieldRewritten")
    assert message.startswith(
        "Service llm-pods: spec.publishNotReadyAddresses is absent each time after Covey has written true"
    )
    before = len(stage.writes("operator", "patch", "services"))
    stage.advance(3600)
    stage.settle()
    assert len(stage.writes("operator", "patch", "services")) <= before + 2

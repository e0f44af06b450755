"""ComputeDomains of a resource: when they can be had, which pods need one, and which of them pods still use."""

from __future__ import annotations

from collections.abc import Iterable

from covey.api import constants as names
from covey.api import core
from covey.backends import Cluster, Identity
from covey.compile import Slot, Tree
from covey.compile.interconnect import template_name
from covey.kube.resources import COMPUTE_DOMAINS
from covey.operator.model.observed import Observed
from covey.operator.model.problem import Problem


def find_missing(cluster: Cluster) -> Problem | None:
    """Report why a resource cannot have the ComputeDomains that it asks for. What runs is left alone meanwhile."""
    if not cluster.compute_domains:
        remedy = "start it with --compute-domains (value computeDomains of the chart)"
        return Problem(names.REASON_UNSUPPORTED, f"spec.interconnect: the operator makes no ComputeDomains: {remedy}")
    if not cluster.serves(COMPUTE_DOMAINS):
        what = f"{COMPUTE_DOMAINS.kind} ({COMPUTE_DOMAINS.api_version})"
        missing = f"spec.interconnect: the cluster does not know {what}: install NVIDIA's DRA driver"
        return Problem(names.REASON_UNSUPPORTED, missing)
    return None


def domain_of(tree: Tree, slot: Slot) -> Identity:
    """The domain that the pod of a slot joins; one without a name where it joins none."""
    interconnect = tree.pods.interconnect
    return COMPUTE_DOMAINS.type, (interconnect.domain(slot) if interconnect else None) or ""


def find_joined(observed: Observed, pods: Iterable[core.Pod]) -> set[Identity]:
    """Find domains from whose templates pods have claims: they go after the last of these."""
    domains = {identity for identity in observed.objects if identity[0] == COMPUTE_DOMAINS.type}
    if not domains:
        return set()
    claimed = {claim.get("resourceClaimTemplateName") for pod in pods for claim in pod.spec.resource_claims or ()}
    return {domain for domain in domains if template_name(domain[1]) in claimed}

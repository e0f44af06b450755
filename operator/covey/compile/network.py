"""Services, and the addresses that pods have through them.

A headless Service publishes addresses before the pods are Ready, because workers look for their leader while they
start. It selects by ``covey.dev/address``, which only the live incarnation of a pod carries. A Service that takes
requests publishes Ready pods only, and selects by ``covey.dev/endpoint``, which a pod loses when it drains.

kube-controller-manager tries every selector of a namespace on every pod that changes there, so the Service of a whole
resource selects by one label, whose value is its own name.

===============================  ======================================================================================
name                             what it is
===============================  ======================================================================================
``<inference>-pods``             headless, all pods of roles without ports, whose replicas share a subdomain
``<inference>-<role>``           headless, all pods of a role with ports, or of a former release
``<inference>-<unit>-<role>-…``  headless, the pods of one replica: UniquePerReplica
``<inference>-<role>-svc``       with a cluster IP, where ``network.service`` asks for it
``<inference>-<role>-<hash>``    headless, the Ready pods of one revision, while several run
===============================  ======================================================================================
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from covey.api import constants as names
from covey.api.inference import DisaggregatedInferenceSpec
from covey.api.roles import Endpoints, Role, Subdomain
from covey.compile import identity
from covey.compile.identity import Owner, Slot
from covey.compile.layout import Layout
from covey.compile.revision import RoleRevision

#: The value of the label ``covey.dev/endpoint``, and of ``covey.dev/address`` where a Service selects by role.
ADDRESSED: Final = "true"

Service = dict[str, Any]

_NOWHERE: Final[Mapping[str, str]] = MappingProxyType({})


class Network:
    """The Services of one resource, and what they are called.

    Args:
        owner: the resource.
        spec: its spec.
    """

    def __init__(self, owner: Owner, spec: DisaggregatedInferenceSpec) -> None:
        self._owner = owner
        self._spec = spec

    def subdomain(self, slot: Slot, revision: RoleRevision) -> str:
        """The headless Service that gives a pod its address; ``revision`` is that of its replica."""
        if revision.has_own_subdomain:
            return self._named(slot.unit, slot.role, slot.replica)
        return self._gathering if revision.gathered else identity.service_name(self._owner.name, slot.role)

    def address(self, slot: Slot, revision: RoleRevision) -> str:
        """A pod's address, as LeaderWorkerSet writes it: without the cluster's domain."""
        return f"{identity.hostname(slot)}.{self.subdomain(slot, revision)}.{self._owner.namespace}"

    def address_label(self, revision: RoleRevision) -> str:
        """The value of the label ``covey.dev/address`` of the pods of a revision."""
        return self._gathering if revision.gathered else ADDRESSED

    def service_address(self, role: str) -> str:
        """The address of a role's Service with a cluster IP, whether it is asked for or not."""
        return f"{self._named(role, 'svc')}.{self._owner.namespace}"

    def services(self, layout: Layout) -> Iterator[Service]:
        """Those that pods have their addresses by."""
        replicas = tuple(layout.replicas())
        values: dict[str, set[str]] = defaultdict(set)
        for _, role_name, _, revision in replicas:
            if not revision.has_own_subdomain:
                values[role_name].add(self.address_label(revision))
        if any(self._gathering in each for each in values.values()):
            yield self._headless(None, self._gathering, {names.LABEL_ADDRESS: self._gathering})
        for role in self._spec.roles:
            found = values[role.name]
            if ADDRESSED in found or _is_named(role):
                # Of a role that has pods with addresses of either kind all pods are published.
                live = {} if len(found) > 1 else {names.LABEL_ADDRESS: next(iter(found), ADDRESSED)}
                selector = self._of_role(role) | live
                yield self._headless(role, identity.service_name(self._owner.name, role.name), selector)
        roles = {role.name: role for role in self._spec.roles}
        for unit, role_name, number, revision in replicas:
            if revision.has_own_subdomain:
                place = {names.LABEL_UNIT: str(unit), names.LABEL_REPLICA: str(number)}
                selector = self._of_role(roles[role_name]) | place | {names.LABEL_ADDRESS: ADDRESSED}
                yield self._headless(roles[role_name], self._named(unit, role_name, number), selector, place)

    def published(self) -> Iterator[Service]:
        """Those with a cluster IP."""
        for role in self._spec.roles:
            if role.network and role.network.service:
                selector = self._of_role(role) | _serving(role)
                yield self._service(role, self._named(role.name, "svc"), {}, selector, type="ClusterIP")

    def of_revision(self, role: str, revision: str, whole: str) -> Service:
        """The Ready pods of one revision of a role, without a cluster IP: a router chooses among them itself.

        Args:
            role: its name.
            revision: hash of the role's revision, as its pods carry it.
            whole: hash of the resource's revision.
        """
        found = next(each for each in self._spec.roles if each.name == role)
        selected = {names.LABEL_REVISION: revision}
        name = self._named(role, whole)
        selector = self._of_role(found) | selected | _serving(found)
        body = self._service(found, name, selected, selector, clusterIP="None")
        body["metadata"]["labels"][names.LABEL_WHOLE_REVISION] = whole
        return body

    def _of_role(self, role: Role) -> dict[str, str]:
        return {names.LABEL_INFERENCE: self._owner.name, names.LABEL_ROLE: role.name}

    def _headless(
        self, role: Role | None, name: str, selector: dict[str, str], place: Mapping[str, str] = _NOWHERE
    ) -> Service:
        return self._service(role, name, place, selector, clusterIP="None", publishNotReadyAddresses=True)

    def _service(
        self, role: Role | None, name: str, labels: Mapping[str, str], selector: dict[str, str], **spec: object
    ) -> Service:
        of_role = {names.LABEL_ROLE: role.name} if role else {}
        body: dict[str, Any] = {**spec, "selector": selector}
        if role and role.network and role.network.ports:
            body["ports"] = [
                {"name": port.name, "port": port.port, "targetPort": port.port, "protocol": port.protocol}
                for port in role.network.ports
            ]
        metadata = self._owner.metadata(name, {**of_role, **labels})
        return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": body}

    @cached_property
    def _gathering(self) -> str:
        return self._named("pods")

    def _named(self, *parts: object) -> str:
        """A name that is no role's own: a role may be called ``prefill-svc``."""
        name = identity.service_name(self._owner.name, *parts)
        return name if name not in self._taken else identity.service_name(self._owner.name, *parts, marked=True)

    @cached_property
    def _taken(self) -> frozenset[str]:
        return frozenset(identity.service_name(self._owner.name, role.name) for role in self._spec.roles)


def _is_named(role: Role) -> bool:
    """It has a Service of its own name whatever its pods' addresses are: for its ports."""
    return (
        role.network is not None
        and bool(role.network.ports)
        and role.network.subdomain is not Subdomain.UNIQUE_PER_REPLICA
    )


def _serving(role: Role) -> dict[str, str]:
    """Labels of the pods of a role that take requests."""
    service = role.network.service if role.network else None
    takes_all = service is not None and service.endpoints is Endpoints.ALL
    return {**({} if takes_all else {names.LABEL_INDEX: "0"}), names.LABEL_ENDPOINT: ADDRESSED}

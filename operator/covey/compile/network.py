"""Services of a resource.

A headless Service publishes addresses before the pods are Ready, because workers look for their leader while they
start. It selects by ``covey.dev/address``, which only the live incarnation of a pod carries. A Service that takes
requests publishes Ready pods only, and selects by ``covey.dev/endpoint`` besides, which a pod loses when it drains.

===============================  ======================================================================================
name                             what it is
===============================  ======================================================================================
``<inference>-pods``             headless, all pods of roles without ports, whose replicas share a subdomain; with the ports
                                 that their containers name
``<inference>-<role>``           headless, all pods of a role with ports, or of a former release
``<inference>-<unit>-<role>-…``  headless, the pods of one replica: UniquePerReplica
``<inference>-<role>-svc``       with a cluster IP, where ``network.service`` asks for it
``<inference>-<role>-<hash>``    headless, the Ready pods of one revision, while several run
===============================  ======================================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final

from covey.api import constants as names
from covey.api.inference import DisaggregatedInferenceSpec
from covey.api.roles import Endpoints, Port, Role, Subdomain
from covey.compile import identity
from covey.compile.identity import Owner, Slot
from covey.compile.layout import Layout
from covey.compile.revision import RoleRevision

_PROTOCOLS: Final = ("TCP", "UDP", "SCTP")
#: Ports of one Service that are taken from containers: an EndpointSlice has no more (``maxPorts`` of the validation).
_MOST_PORTS: Final = 100


#: The value of the labels ``covey.dev/address`` and ``covey.dev/endpoint``.
ADDRESSED: Final = "true"
#: The value of ``covey.dev/endpoint`` of a pod that lives and gets no requests, since another revision does.
HIDDEN: Final = "false"

Service = dict[str, Any]


class NetworkCompiler:
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
            return self._service_name(slot.unit, slot.role, slot.replica)
        return self._gathering if revision.gathered else identity.service_name(self._owner.name, slot.role)

    def address(self, slot: Slot, revision: RoleRevision) -> str:
        """A pod's address, as LeaderWorkerSet writes it: without the cluster's domain."""
        return f"{identity.hostname(slot)}.{self.subdomain(slot, revision)}.{self._owner.namespace}"

    def service_address(self, role: str) -> str:
        """The address of a role's Service with a cluster IP, whether it is asked for or not."""
        return f"{self._service_name(role, 'svc')}.{self._owner.namespace}"

    def services(self, layout: Layout) -> Iterator[Service]:
        """The headless Services, by which pods have their addresses."""
        replicas = tuple(layout.replicas())
        by_role = {role for _, role, _, revision in replicas if not (revision.has_own_subdomain or revision.gathered)}
        gathered = {revision.hash: revision for *_, revision in replicas if revision.gathered}
        if gathered:
            body = self._headless(None, self._gathering, {})
            if ports := _container_ports(gathered.values()):
                body["spec"]["ports"] = ports
            yield body
        for role in self._spec.roles:
            if role.name in by_role or _is_named(role):
                yield self._headless(role, identity.service_name(self._owner.name, role.name), {})
        roles = {role.name: role for role in self._spec.roles}
        for unit, role_name, number, revision in replicas:
            if revision.has_own_subdomain:
                place = {names.LABEL_UNIT: str(unit), names.LABEL_REPLICA: str(number)}
                yield self._headless(roles[role_name], self._service_name(unit, role_name, number), place)

    def cluster_ip_services(self) -> Iterator[Service]:
        """The Services with a cluster IP."""
        for role in self._spec.roles:
            if role.network and role.network.service:
                yield self._service(role, self._service_name(role.name, "svc"), {}, _serving(role), type="ClusterIP")

    def of_revision(self, role: str, revision: str, whole: str) -> Service:
        """The Ready pods of one revision of a role, without a cluster IP: a router chooses among them itself.

        Args:
            role: its name.
            revision: hash of the role's revision, as its pods carry it.
            whole: hash of the resource's revision.
        """
        role_spec = next(role_spec for role_spec in self._spec.roles if role_spec.name == role)
        selected = {names.LABEL_REVISION: revision}
        name = self._service_name(role, whole)
        body = self._service(role_spec, name, selected, {**selected, **_serving(role_spec)}, clusterIP="None")
        body["metadata"]["labels"][names.LABEL_WHOLE_REVISION] = whole
        return body

    def _headless(self, role: Role | None, name: str, place: dict[str, str]) -> Service:
        return self._service(role, name, place, place, clusterIP="None", publishNotReadyAddresses=True)

    def _service(
        self, role: Role | None, name: str, labels: dict[str, str], selected: dict[str, str], **spec: object
    ) -> Service:
        of_role = {names.LABEL_ROLE: role.name} if role else {}
        selector = {names.LABEL_INFERENCE: self._owner.name, **of_role, **selected, names.LABEL_ADDRESS: ADDRESSED}
        body: dict[str, Any] = {**spec, "selector": selector}
        if role and role.network and role.network.ports:
            body["ports"] = [_service_port(port) for port in role.network.ports]
        metadata = self._owner.metadata(name, {**of_role, **labels})
        own = role.network.metadata if role and role.network else None
        if own and own.labels:
            metadata["labels"] = {**own.labels, **metadata["labels"]}
        if own and own.annotations:
            metadata["annotations"] = dict(own.annotations)
        return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": body}

    @cached_property
    def _gathering(self) -> str:
        return self._service_name("pods")

    def _service_name(self, *parts: object) -> str:
        """A name that is no role's own: a role may be called ``prefill-svc``."""
        name = identity.service_name(self._owner.name, *parts)
        return name if name not in self._taken else identity.service_name(self._owner.name, *parts, marked=True)

    @cached_property
    def _taken(self) -> frozenset[str]:
        return frozenset(identity.service_name(self._owner.name, role.name) for role in self._spec.roles)


def has_ports_of_containers(body: Mapping[str, Any]) -> bool:
    """Tell whether a Service has the ports that containers name: no role has said them."""
    return body["kind"] == "Service" and names.LABEL_ROLE not in body["metadata"]["labels"]


def _container_ports(revisions: Iterable[RoleRevision]) -> list[dict[str, Any]]:
    """The ports that containers of templates name, for meshes, which carry nothing else to a headless Service.

    What is no port is left out: the API server refuses the pod.
    """
    numbered: set[tuple[int, str]] = set()
    for revision in revisions:
        for index in range(min(revision.size, 2)):
            spec = revision.template_of(index)["spec"]
            for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
                ports = container.get("ports")
                for port in ports if isinstance(ports, list | tuple) else ():
                    number, protocol = (
                        (port.get("containerPort"), port.get("protocol")) if isinstance(port, Mapping) else (0, "")
                    )
                    if isinstance(number, int) and 0 < number < 2**16 and protocol in {None, *_PROTOCOLS}:
                        numbered.add((number, protocol or "TCP"))
    return [
        {"name": f"{protocol.lower()}-{number}", "port": number, "targetPort": number, "protocol": protocol}
        for number, protocol in sorted(numbered)[:_MOST_PORTS]
    ]


def _service_port(port: Port) -> dict[str, Any]:
    body = {"name": port.name, "port": port.port, "targetPort": port.port, "protocol": port.protocol}
    return {**body, "appProtocol": port.app_protocol} if port.app_protocol else body


def _is_named(role: Role) -> bool:
    """Tell whether a role has a Service of its own name for its ports, whatever its pods' addresses are."""
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

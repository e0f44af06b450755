"""Shapes: like pods are one object, and what decides a node is all in it."""

from __future__ import annotations

from typing import Any

from builders import pods
from covey.api import constants, core
from covey.placement.cluster.node_filters import shape_cause
from covey.placement.cluster.shape import (
    BIND_MOUNT_OPTIONS,
    FEATURES,
    HOST_NETWORK_USERS,
    RESTART_ALL,
    conflict,
    exclusive,
    shape_of,
    unmodelled_constraints,
)
from covey.placement.model import Shape


def anti_affinity(
    *, key: str = constants.HOSTNAME_LABEL, namespace_selector: core.LabelSelector | None = None, **labels: str
) -> core.Affinity:
    term = core.PodAffinityTerm(
        topology_key=key, label_selector=core.LabelSelector(match_labels=labels), namespace_selector=namespace_selector
    )
    return core.Affinity(pod_anti_affinity=core.PodAffinity(required=(term,)))


def pinned(node: str, *, expressions: tuple[core.Requirement, ...] | None = None) -> core.Affinity:
    field = core.Requirement(key="metadata.name", operator="In", values=(node,))
    term = core.NodeSelectorTerm(match_fields=(field,), match_expressions=expressions)
    return core.Affinity(node_affinity=core.NodeAffinity(required=core.NodeSelector(node_selector_terms=(term,))))


def pod(name: str = "p", labels: dict[str, str] | None = None, **spec: Any) -> core.Pod:
    container = {"resources": {"requests": {"cpu": "1"}}}
    return pods.pod(name, labels=labels, spec={"containers": [container], **spec})


def test_the_pin_of_a_released_pod_is_no_part_of_its_shape() -> None:
    plain = shape_of(pod())
    assert shape_of(pod(affinity=pinned("n1"))) is plain
    gated = pod(affinity=pinned("n1"), schedulingGates=(core.SchedulingGate(name=constants.GATE_GANG),))
    assert shape_of(gated).node_affinity is not None


def test_what_stood_beside_the_pin_stays() -> None:
    zone = core.Requirement(key="zone", operator="In", values=("a",))
    shape = shape_of(pod(affinity=pinned("n1", expressions=(zone,))))
    assert shape.node_affinity is not None
    (term,) = shape.node_affinity.node_selector_terms
    assert term.match_expressions == (zone,)
    assert term.match_fields is None


def port(number: int, ip: str = "", protocol: str = "TCP") -> Shape:
    ports = (core.ContainerPort(container_port=1, host_port=number, host_ip=ip, protocol=protocol),)
    return shape_of(pod(containers=(core.Container(ports=ports),)))


def test_host_ports_clash_by_protocol_and_address() -> None:
    assert exclusive(port(80))
    assert conflict(port(80), port(80, "10.0.0.1"))
    assert not conflict(port(80, "10.0.0.2"), port(80, "10.0.0.1"))
    assert not conflict(port(80), port(80, protocol="UDP"))
    assert not conflict(port(80), port(81))
    assert not exclusive(shape_of(pod()))


def test_nodes_when_a_pod_uses_what_they_must_declare_are_those_that_declare_it() -> None:
    """KEP-5328; the first three are all that kube-scheduler infers from a pod's spec."""
    restart = {"restartPolicyRules": [{"action": "RestartAllContainers"}]}
    kinds: list[tuple[str, dict[str, Any]]] = [
        (RESTART_ALL, {"containers": [restart]}),
        (RESTART_ALL, {"initContainers": [restart]}),
        (HOST_NETWORK_USERS, {"hostNetwork": True, "hostUsers": False}),
        (BIND_MOUNT_OPTIONS, {"containers": [{"volumeMounts": [{"bindMountOptions": ["noexec"]}]}]}),
    ]
    for name, spec in kinds:
        shape = shape_of(pod(**spec))
        assert shape != shape_of(pod())
        for declared, cause in ((None, name), ((), name), (("Another",), name), (FEATURES, None)):
            node = core.Node(core.Meta(name="n"), status=core.NodeStatus(declared_features=declared))
            assert shape_cause(shape, node) == (f"undeclared feature {cause}" if cause else None)
    plain = [{"restartPolicyRules": [{"action": "Restart"}], "volumeMounts": [{"name": "v", "mountPath": "/v"}]}]
    for spec in ({"hostNetwork": True}, {"hostUsers": False}, {"containers": plain}):
        assert not shape_of(pod(**spec)).features


def test_what_the_planner_does_not_model_is_named() -> None:
    assert unmodelled_constraints(pod(affinity=anti_affinity(app="x"))) == ()
    assert unmodelled_constraints(pod(affinity=anti_affinity(key="zone", app="x"))) == ("podAntiAffinity over zone",)
    assert unmodelled_constraints(pod(affinity=anti_affinity(namespace_selector=core.LabelSelector(), app="x"))) == ()
    team = core.LabelSelector(match_labels={"team": "a"})
    assert unmodelled_constraints(pod(affinity=anti_affinity(namespace_selector=team, app="x"))) == (
        "podAntiAffinity by labels of namespaces",
    )
    required = (core.PodAffinityTerm(topology_key="zone"),)
    near = core.Affinity(pod_affinity=core.PodAffinity(required=required))
    assert unmodelled_constraints(pod(affinity=near)) == ("podAffinity over zone",)
    assert unmodelled_constraints(pod(topologySpreadConstraints=(core.TopologySpread(),))) == (
        "topologySpreadConstraints",
    )
    soft = core.TopologySpread(when_unsatisfiable="ScheduleAnyway")
    assert unmodelled_constraints(pod(topologySpreadConstraints=(soft,))) == ()
    assert unmodelled_constraints(pod(volumes=(core.Volume(persistent_volume_claim={"claimName": "x"}),))) == (
        "persistentVolumeClaim",
    )

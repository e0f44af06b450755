"""Where a running resource's pods are, as a floor.

Where some nodes lie, in words: the finest domain of each level that holds them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from covey.admission import podstate
from covey.admission.tree import number
from covey.api import core
from covey.api.constants import LABEL_INDEX, LABEL_REPLICA, LABEL_ROLE, LABEL_UNIT
from covey.api.inference import DisaggregatedInference
from covey.picture.floor import Floor, Spot, build_floor
from covey.placement.cluster import resources
from covey.placement.cluster.inventory import Inventory, path_of
from covey.placement.cluster.presets import choose
from covey.planning.answer import Teller
from covey.planning.drawing import survey
from covey.planning.facts import Facts


def whereabouts(name: str | None, facts: Facts) -> Callable[[Sequence[str]], str]:
    """A function from nodes to words; it says nothing where the topology is not clear.

    Args:
        name: the topology that the resource names.
        facts: the cluster.
    """
    try:
        topology = choose(name, facts.named_topologies(), facts.default_topologies(), facts.nodes)
    except LookupError:
        return lambda _nodes: ""
    paths = {node.metadata.name: path_of(topology, node.metadata.labels or {}) for node in facts.nodes}
    teller = Teller(topology, lambda node: paths.get(node, ()), {})

    def words(nodes: Sequence[str]) -> str:
        shared = teller.shared_domains(node for node in nodes if node in paths)
        return ", ".join(f"{each.level} {each.domain}" for each in shared if each.level != "host")

    return words


def floor_now(inferences: Sequence[DisaggregatedInference], facts: Facts) -> Floor:
    """The floor with the pods of some resources in colour, bound ones and pinned ones.

    Raises:
        LookupError: which topology to draw is not clear.
    """
    name = inferences[0].spec.topology.name if inferences else None
    topology = choose(name, facts.named_topologies(), facts.default_topologies(), facts.nodes)
    inventory = Inventory([topology])
    for node in facts.nodes:
        inventory.set_node(node)
    titles = {each.metadata.uid: f"{each.metadata.namespace}/{each.metadata.name}" for each in inferences}
    ours = [pod for pod in facts.pods if (owner := pod.metadata.controller) and owner.uid in titles]
    spots = [spot for pod in ours if (spot := _spot(pod, titles)) is not None]
    drawn = {pod.metadata.uid for pod in ours}
    return build_floor(
        topology,
        survey(facts.nodes, facts.pods, partial(inventory.path, topology.name), drawn),
        spots,
        title=", ".join(titles.values()),
        wanted=[resources.pod_requests(pod) for pod in ours],
        roles=[(titles[each.metadata.uid], role.name) for each in inferences for role in each.spec.roles],
    )


def _spot(pod: core.Pod, titles: dict[str, str]) -> Spot | None:
    node, owner, meta = podstate.holding(pod), pod.metadata.controller, pod.metadata
    if node is None or owner is None:
        return None
    return Spot(
        titles[owner.uid],
        number(meta.label(LABEL_UNIT)),
        meta.label(LABEL_ROLE) or "",
        number(meta.label(LABEL_REPLICA)),
        number(meta.label(LABEL_INDEX)),
        meta.name,
        node,
        resources.pod_requests(pod),
    )

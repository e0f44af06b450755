"""What the tests of Kubernetes' own groups share: a topology, and kube-apiserver's rules for a Workload.

The rules are those of Kubernetes 1.37.1 (``pkg/apis/scheduling/validation``, and the tags of the types).
"""

from collections.abc import Iterator
from typing import Any

from builders import inferences
from builders.inferences import role
from covey.api.inference import DisaggregatedInference
from covey.compile import Levels

BLOCK, RACK = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack"
LEVELS: Levels = {
    "zone": ("topology.kubernetes.io/zone",),
    "block": (BLOCK,),
    "rack": (RACK,),
    "host": ("kubernetes.io/hostname", "example.com/host"),
}
Object = dict[str, Any]


def llama(**spec: Any) -> DisaggregatedInference:
    """A unit in one block, and two roles that do not follow it."""
    return inferences.llama(
        {"topology": {"required": "rack"}},
        {"minReplicas": 2},
        role("router", minReplicas=0, topology={"followUnit": False}),
        role("cache", minReplicas=0, size=2, topology={"followUnit": False, "required": "rack"}),
        **{"topology": {"required": "block"}, **spec},
    )


def key(body: Object) -> str | None:
    """The one key that a group or template asks for."""
    topology = (body.get("schedulingConstraints") or {}).get("topology") or []
    assert len(topology) <= 1
    return topology[0]["key"] if topology else None


def policy(body: Object) -> Object:
    """The gang of a group or template."""
    assert body["schedulingPolicy"].keys() == {"gang"}
    return body["schedulingPolicy"]["gang"]


def templates(workload: Object) -> Iterator[tuple[int, Object]]:
    """Every template with its depth; children before their parent's siblings."""
    spec = workload["spec"]
    assert ("podGroupTemplates" in spec) != ("compositePodGroupTemplates" in spec), (
        "a Workload has one of the two lists"
    )
    yield from _below(spec, 1)


def _below(parent: Object, depth: int) -> Iterator[tuple[int, Object]]:
    for field in ("compositePodGroupTemplates", "podGroupTemplates"):
        found = parent.get(field, [])
        assert len(found) <= 8
        for template in found:
            yield depth, template
            yield from _below(template, depth + 1)


def check_workload(workload: Object) -> None:
    """kube-apiserver would take it."""
    found = list(templates(workload))
    names = [template["name"] for _, template in found]
    assert len(names) == len(set(names)), "template names are unique in the whole tree"
    assert len({template.get("priorityClassName") for _, template in found}) == 1, "one priority"
    for depth, template in found:
        gang = policy(template)
        assert min(gang.values()) >= 1
        if "minGroupCount" in gang:
            assert depth <= 3, "at most three composites above a PodGroup"
            assert template.get("podGroupTemplates") or template.get("compositePodGroupTemplates")
        else:
            assert not {"podGroupTemplates", "compositePodGroupTemplates"} & template.keys()
        _check_disruption(template)


def _check_disruption(template: Object) -> None:
    """Where all of a group goes at once, all of each child does."""
    children = [*template.get("podGroupTemplates", ()), *template.get("compositePodGroupTemplates", ())]
    if "all" in template["disruptionMode"]:
        assert all("all" in child["disruptionMode"] for child in children)

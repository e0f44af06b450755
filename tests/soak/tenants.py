"""Choices of a platform and its tenants that must harm nobody who serves: taints, budgets, Services, names of levels."""

from __future__ import annotations

import random
from typing import Any, Final

from soak.choices import choice
from soak.facts import LEVELS
from soak.settings import NAMESPACES, NODES
from soak.stage import Stage

#: On no list of the operator's.
_TAINT: Final = "tenants.example/maintenance"
#: Nodes of 40 that carry it at a time, so that there is room for all resources beside them.
_MOST_TAINTED: Final = 8
_TRIES: Final = 10
_TOPOLOGIES: Final = "/apis/scheduling.covey.dev/v1alpha1/clustertopologies"
_SERVICES: Final = "/api/v1/namespaces/{}/services"
_GROUPS: Final = "/apis/scheduling.covey.dev/v1alpha1/namespaces/{}/{}"
_BUDGETS: Final = "/apis/policy/v1/namespaces/{}/poddisruptionbudgets"


@choice("tenants", 4)
def taint_nodes_without_a_word(stage: Stage, generator: random.Random) -> str | None:
    """``NoSchedule`` on no list: nobody new may come, and nobody who serves has to go."""
    there = [name for name in NODES.names if name not in stage.fleet.ill]
    used = sorted({pod.node for pod in stage.pods()} & set(there))
    room = _MOST_TAINTED - len(stage.fleet.tainted)
    count = min(room, generator.randint(1, 4))
    if count < 1 or not used:
        return None
    names, seconds = sorted(set(generator.choices(used, k=count))), generator.uniform(0.3, 15)
    for name in names:
        _set_taint(stage, name, "NoSchedule")
        stage.fleet.tainted.add(name)
        stage.later(seconds, f"take the taint off {name}", lambda name=name: _untaint(stage, name))
    return f"{', '.join(names)} for {seconds:.1f} s"


def _untaint(stage: Stage, name: str) -> None:
    stage.fleet.tainted.discard(name)
    _set_taint(stage, name, None)


def _set_taint(stage: Stage, name: str, effect: str | None) -> None:
    """Change one taint and no other, whoever else writes meanwhile."""
    for _ in range(_TRIES):
        found = stage.api("GET", f"/api/v1/nodes/{name}")
        if found is None:
            return
        taints = [each for each in found["spec"].get("taints") or () if each["key"] != _TAINT]
        taints += [{"key": _TAINT, "effect": effect}] if effect else []
        metadata = {"resourceVersion": found["metadata"]["resourceVersion"]}
        if stage.api("PATCH", f"/api/v1/nodes/{name}", {"metadata": metadata, "spec": {"taints": taints or None}}):
            return


@choice("tenants", 3)
def delete_the_budget(stage: Stage, generator: random.Random) -> str | None:
    namespace = generator.choice(NAMESPACES)
    done = stage.api("DELETE", f"{_BUDGETS.format(namespace)}/covey-gangs")
    return None if done is None else f"of {namespace}"


@choice("tenants", 3)
def delete_a_gathering_service(stage: Stage, generator: random.Random) -> str | None:
    """A Service that pods are found under by their names."""
    used = sorted({(pod.namespace, pod.subdomain) for pod in stage.pods() if pod.subdomain})
    if not used:
        return None
    namespace, name = generator.choice(used)
    done = stage.api("DELETE", f"{_SERVICES.format(namespace)}/{name}")
    return None if done is None else f"{namespace}/{name}"


@choice("tenants", 2)
def delete_a_group(stage: Stage, generator: random.Random) -> str | None:
    """Of a gang that runs or waits: it is made anew."""
    namespace = generator.choice(NAMESPACES)
    kind = generator.choice(["PodGroup", "CompositePodGroup", "CompositePodGroup", "Workload"])
    path = _GROUPS.format(namespace, f"{kind.lower()}s")
    found = (stage.api("GET", path) or {"items": []})["items"]
    names = sorted(each["metadata"]["name"] for each in found if each["metadata"].get("ownerReferences"))
    if not names:
        return None
    name = generator.choice(names)
    stage.api("DELETE", f"{path}/{name}")
    return f"{kind} {namespace}/{name}"


@choice("tenants", 2)
def rename_a_key_on_nodes(stage: Stage, generator: random.Random) -> str | None:
    """Nodes of a rack, of a block, or all of them carry a level under another key for a while."""
    level, key = generator.choice(sorted(LEVELS.items()))
    names = NODES.names
    if generator.random() < 0.7:
        part = generator.choice(names).rsplit("-", generator.choice([1, 2]))[0]
        names = [name for name in names if name.startswith(f"{part}-")]
    seconds = generator.uniform(1, 12)
    for name in names:
        value = stage.fleet.label(name, key)
        stage.api("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"labels": {key: None, f"{key}-renamed": value}}})
        stage.later(
            seconds,
            f"name {level} of {name} as before",
            lambda name=name, value=value: _restore(stage, name, key, value),
        )
    return f"{level} of {len(names)} nodes for {seconds:.1f} s"


def _restore(stage: Stage, name: str, key: str, value: str) -> None:
    stage.api("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"labels": {key: value, f"{key}-renamed": None}}})


@choice("tenants", 2)
def bring_another_topology(stage: Stage, generator: random.Random) -> str | None:
    """A ClusterTopology that would be chosen: with keys that no node has, other names of levels, or fewer of them."""
    if stage.api("GET", f"{_TOPOLOGIES}/soak") is not None:
        return None
    what, levels = generator.choice(
        [
            ("keys that no node has", {level: f"{key}-renamed" for level, key in LEVELS.items()}),
            ("other names of levels", {"row": LEVELS["block"], "shelf": LEVELS["rack"]}),
            ("the same levels", {"block": LEVELS["block"], "rack": LEVELS["rack"]}),
            ("no blocks", {"rack": LEVELS["rack"]}),
        ]
    )
    order = sorted(levels, key=["block", "row", "rack", "shelf"].index)
    body: dict[str, Any] = {
        "apiVersion": "scheduling.covey.dev/v1alpha1",
        "kind": "ClusterTopology",
        "metadata": {"name": "soak", "annotations": {"scheduling.covey.dev/default": "true"}},
        "spec": {"levels": [{"name": level, "keys": [levels[level]]} for level in order]},
    }
    seconds = generator.uniform(1, 12)
    stage.api("POST", _TOPOLOGIES, body)
    stage.later(seconds, "take the topology away", lambda: stage.api("DELETE", f"{_TOPOLOGIES}/soak"))
    return f"with {what} for {seconds:.1f} s"

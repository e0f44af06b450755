"""The objects of a resource, as a tree of groups and pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from covey.api.constants import LABEL_POD_GROUP
from covey.cli.render.words import DIM

Object = Mapping[str, Any]


def print_objects(objects: Sequence[Object], console: Console) -> None:
    """A tree for each Workload: groups below their parents, pods below their group, Services beside."""
    below: dict[tuple[str, str], list[Object]] = {}
    tops: list[Object] = []
    for body in objects:
        parent = _parent(body)
        if parent is None:
            tops.append(body)
        else:
            below.setdefault((body["metadata"]["namespace"], parent), []).append(body)
    for body in tops:
        tree = Tree(_label(body), guide_style=DIM)
        _grow(tree, body, below)
        console.print(tree)


def _grow(tree: Tree, body: Object, below: Mapping[tuple[str, str], Sequence[Object]]) -> None:
    if body["kind"] not in ("CompositePodGroup", "PodGroup"):
        return
    for child in below.get((body["metadata"]["namespace"], body["metadata"]["name"]), ()):
        if _fits(body, child):
            _grow(tree.add(_label(child)), child, below)


def _fits(parent: Object, child: Object) -> bool:
    return bool((child["kind"] == "Pod") == (parent["kind"] == "PodGroup"))


def _parent(body: Object) -> str | None:
    if body["kind"] == "Pod":
        found = (body["metadata"].get("labels") or {}).get(LABEL_POD_GROUP)
    else:
        found = (body.get("spec") or {}).get("parentCompositePodGroupName")
    return str(found) if found else None


def _label(body: Object) -> Text:
    return Text(f"{body['kind']} ", DIM).append(body["metadata"]["name"], "bold").append(_detail(body), DIM)


def _detail(body: Object) -> str:
    spec = body.get("spec") or {}
    parts = []
    policy = spec.get("schedulingPolicy")
    if policy is not None:
        gang = policy.get("gang") or {}
        desired = spec.get("desiredGroupCount", spec.get("desiredCount"))
        least = gang.get("minGroupCount", gang.get("minCount"))
        parts.append(f"gang {least} of {desired}" if gang else f"no gang, {desired}")
    constraints = spec.get("schedulingConstraints") or {}
    parts += [
        f"{'one' if each.get('scope') != 'Pod' else 'on a'} {each.get('level') or each.get('key')}"
        f"{'' if each.get('mode', 'Required') == 'Required' else ' preferred'}"
        for each in constraints.get("topology") or ()
    ]
    return f"  {', '.join(parts)}" if parts else ""

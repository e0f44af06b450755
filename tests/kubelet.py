"""What the kubelet makes of a container before it starts it: the environment, and the command with it written in."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from builders.manifests import Object


def expand(text: str, values: Mapping[str, str]) -> str:
    """``$(NAME)`` with its value, as ``k8s.io/kubernetes/third_party/forked/golang/expansion`` does it.

    What is unknown stays as it is written, and ``$$`` is one ``$``.
    """
    found, position = "", 0
    while position < len(text):
        if text[position] != "$" or position + 1 == len(text):
            found, position = found + text[position], position + 1
            continue
        following = text[position + 1]
        end = text.find(")", position) if following == "(" else -1
        if following == "$":
            found, position = f"{found}$", position + 2
        elif following == "(" and end < 0:
            found, position = f"{found}$(", position + 2
        elif following == "(":
            name = text[position + 2 : end]
            found, position = found + values.get(name, f"$({name})"), end + 1
        else:
            found, position = f"{found}${following}", position + 2
    return found


def environment_of(pod: Object) -> dict[str, str]:
    """The variables of a pod's first container, in order: each may refer to those before it."""
    found: dict[str, str] = {}
    for each in pod["spec"]["containers"][0].get("env", ()):
        if "value" in each:
            found[each["name"]] = expand(each["value"], found)
        elif "fieldRef" in each.get("valueFrom", {}):
            found[each["name"]] = _field(pod, each["valueFrom"]["fieldRef"]["fieldPath"])
    return found


def _field(pod: Object, path: str) -> str:
    """A field of the downward API: a label (``metadata.labels['key']``), an annotation, or a path without lists."""
    if "[" not in path:
        return str(functools.reduce(lambda value, key: value[key], path.split("."), pod))
    kind, _, key = path.removeprefix("metadata.").removesuffix("']").partition("['")
    return str(pod["metadata"].get(kind, {}).get(key, ""))


def command_of(pod: Object) -> list[str]:
    """The command line of a pod's first container."""
    values, container = environment_of(pod), pod["spec"]["containers"][0]
    return [expand(part, values) for part in (*container.get("command", ()), *container.get("args", ()))]

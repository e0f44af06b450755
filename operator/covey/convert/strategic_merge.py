"""Strategic merge patches of pod templates (``kubectl explain``'s ``patchStrategy`` and ``patchMergeKey``).

Only what a patch in a manifest uses: maps and keyed lists are merged, other lists are replaced, null removes, and
``$patch: delete`` and ``$patch: replace`` do as they say. The directives that kubectl writes by itself are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from covey.convert.fields import ConversionError

#: Lists of core/v1 that are merged item by item, and what tells items apart; every other list is replaced.
_KEYS: Final[dict[str, str]] = {
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "volumes": "name",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "resourceClaims": "name",
    "topologySpreadConstraints": "topologyKey",
}


_PATCH: Final = "$patch"


def apply_merge(base: Mapping[str, Any], patch: Any, path: str) -> dict[str, Any]:
    """A template with a patch applied.

    Args:
        base: the template.
        patch: what changes.
        path: where the patch stands, for what is wrong with it.

    Raises:
        ConversionError: the patch is none.
    """
    if not isinstance(patch, Mapping):
        raise ConversionError(path, "is not an object", "write it as a part of a pod template")
    directive = patch.get(_PATCH)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _PATCH}
    merged = dict(base)
    for key, value in patch.items():
        below = f"{path}.{key}"
        if str(key).startswith("$"):
            raise ConversionError(below, "is a directive that is not known", "write the merged template instead")
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping):
            old = merged.get(key)
            merged[key] = apply_merge(old if isinstance(old, Mapping) else {}, value, below)
        elif isinstance(value, list) and key in _KEYS:
            old = merged.get(key)
            merged[key] = _list(old if isinstance(old, list) else [], value, _KEYS[key], below)
        else:
            merged[key] = value
    return merged


def _list(base: Sequence[Any], patch: Sequence[Any], name: str, path: str) -> list[Any]:
    merged: dict[Any, Any] = {_item_name(item, name, path): item for item in base}
    for number, item in enumerate(patch):
        below = f"{path}[{number}]"
        which = _item_name(item, name, below)
        if item.get(_PATCH) == "delete":
            merged.pop(which, None)
        else:
            merged[which] = apply_merge(merged.get(which, {}), item, below)
    return list(merged.values())


def _item_name(item: Any, name: str, path: str) -> Any:
    if not isinstance(item, Mapping) or not isinstance(item.get(name), (str, int)):
        raise ConversionError(path, f"has no {name}, by which items are merged", f"give it one, or write {name} there")
    return item[name]

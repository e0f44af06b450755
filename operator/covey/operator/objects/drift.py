"""Drift of an object from what was applied, by a digest that it carries.

Server-side apply finds it by applying again; comparing first saves a request for every object in every pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from covey.backends import Owned
from covey.compile.identity import short_hash
from covey.operator.model.objects import ANNOTATION_APPLIED


def add_digest(body: Mapping[str, Any]) -> dict[str, Any]:
    """Add to an object a digest of itself: it is then ready to be applied."""
    digest = short_hash(json.dumps(body, sort_keys=True, separators=(",", ":")), 12)
    annotations = {**body["metadata"].get("annotations", {}), ANNOTATION_APPLIED: digest}
    metadata = {**body["metadata"], "annotations": annotations}
    return {**body, "metadata": metadata}


def has_drifted(wanted: Mapping[str, Any], stored: Owned) -> bool:
    """Tell whether a field of ours was changed by somebody, or what we want has changed since it was applied.

    Args:
        wanted: the object as ``add_digest`` gives it.
        stored: the object as stored; fields that others added are their own business.
    """
    metadata = wanted["metadata"]
    return not (
        _contains(stored.metadata.annotations or {}, metadata["annotations"])
        and _contains(stored.metadata.labels or {}, metadata["labels"])
        and _contains(stored.spec, wanted.get("spec", {}))
    )


def find_difference(wanted: Mapping[str, Any], stored: Owned) -> tuple[str, object, object]:
    """Find the first field of ours that is stored otherwise: its path, as it is wanted, and as it is stored."""
    metadata = wanted["metadata"]
    parts = (
        ("metadata.annotations", metadata["annotations"], stored.metadata.annotations or {}),
        ("metadata.labels", metadata["labels"], stored.metadata.labels or {}),
        ("spec", wanted.get("spec", {}), stored.spec),
    )
    return next(filter(None, (_find_difference(*part) for part in parts)), ("spec", None, None))


def _find_difference(path: str, wanted: object, stored: object) -> tuple[str, object, object] | None:
    if _contains(stored, wanted):
        return None
    inner: Iterator[tuple[str, object, object] | None] = iter(())
    if isinstance(wanted, dict) and isinstance(stored, dict):
        inner = (_find_difference(f"{path}.{key}", value, stored.get(key)) for key, value in sorted(wanted.items()))
    elif isinstance(wanted, list) and isinstance(stored, list) and len(wanted) == len(stored):
        pairs = enumerate(zip(wanted, stored, strict=True))
        inner = (_find_difference(f"{path}[{number}]", *pair) for number, pair in pairs)
    return next(filter(None, inner), (path, wanted, stored))


def _contains(stored: object, wanted: object) -> bool:
    # Both come from JSON, or are about to. Most are equal, which is found without a look at each field.
    if stored == wanted:
        return True
    if isinstance(wanted, dict):
        return isinstance(stored, dict) and all(
            key in stored and _contains(stored[key], value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(stored, list)
            and len(stored) == len(wanted)
            and all(_contains(one, other) for one, other in zip(stored, wanted, strict=True))
        )
    return False

"""Drift of an object from what was applied, by a digest that it carries.

Server-side apply finds it by applying again; comparing first saves a request for every object in every pass.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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

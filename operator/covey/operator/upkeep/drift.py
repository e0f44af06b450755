"""Drift of objects: differences from what was applied.

Server-side apply finds them by applying again; comparing first saves a request for every object in every pass.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from covey.backends import Owned
from covey.compile.identity import short_hash
from covey.operator.terms.objects import ANNOTATION_APPLIED


def stamped(body: Mapping[str, Any]) -> dict[str, Any]:
    """Add to an object a digest of itself: it is then ready to be applied."""
    digest = short_hash(json.dumps(body, sort_keys=True, separators=(",", ":")), 12)
    metadata = {**body["metadata"], "annotations": {ANNOTATION_APPLIED: digest}}
    return {**body, "metadata": metadata}


def has_drifted(wanted: Mapping[str, Any], found: Owned) -> bool:
    """Tell whether a field of ours was changed by somebody, or what we want has changed since it was applied.

    Args:
        wanted: the object as ``stamped`` gives it.
        found: the object as stored; fields that others added are their own business.
    """
    metadata = wanted["metadata"]
    return not (
        _contains(found.metadata.annotations or {}, metadata["annotations"])
        and _contains(found.metadata.labels or {}, metadata["labels"])
        and _contains(found.spec, wanted["spec"])
    )


def _contains(found: object, wanted: object) -> bool:
    # Both come from JSON, or are about to. Most are equal, which is found without a look at each field.
    if found == wanted:
        return True
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(
            key in found and _contains(found[key], value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(_contains(one, other) for one, other in zip(found, wanted, strict=True))
        )
    return False

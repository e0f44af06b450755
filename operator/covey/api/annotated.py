"""Annotations as anybody may have written them."""

from __future__ import annotations

import json
from typing import Any


def read_json(text: str | None) -> Any:
    """The JSON value of an annotation; None where there is none, where it is no JSON, or nested too deep to be read."""
    try:
        return json.loads(text or "null")
    except (ValueError, RecursionError):
        return None

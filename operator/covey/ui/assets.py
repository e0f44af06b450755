"""The files of the page, read once: package data, served from where the page comes from."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

INDEX: Final = "index.html"
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]*\.(html|css|js|svg)")
_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """A file; ``tag`` is another one when the content is."""

    content: bytes
    type: str
    tag: str


def load_assets() -> dict[str, Asset]:
    """All files of the page by name."""
    assets = {}
    for file in (files("covey.ui") / "page").iterdir():
        match = _NAME.fullmatch(file.name)
        if match and file.is_file():
            content = file.read_bytes()
            assets[file.name] = Asset(content, _TYPES[match[1]], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
    return assets

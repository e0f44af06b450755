"""A start command as engines have them: all that Go's JSON and Python's write in different ways stands in it."""

from __future__ import annotations

from typing import Final

#: Shell, JSON, Jinja, and the line separator that chat templates may have.
SERVE: Final = (
    "sh",
    "-c",
    'test -d /models && exec serve --config \'{"a": "<b>"}\' --chat \'{{ x if y > 1 else "\u2028" }}\' 2>&1 > /dev/null',
)

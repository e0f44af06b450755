"""Whether a command has printed what its page shows.

`…` stands for anything in a line, and alone on a line for any lines. What differs from run to run is compared by its
form: ages, times, and what is random in names. Columns may have other widths for it.
"""

from __future__ import annotations

import difflib
import re

ELLIPSIS = "…"
#: What differs from run to run → what stands for it. The order matters.
_FORMS = (
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)"), "<time>"),
    (re.compile(r"(?<![\w.-])(?:\d+(?:\.\d+)?(?:ms|[smhdy]))+(?![\w.-])"), "<age>"),
    # Kubernetes' own random suffixes have no vowels, 0, 1 and 3: of ReplicaSets with their pods, and of pods alone.
    (re.compile(r"-[bcdfghjklmnpqrstvwxz2456789]{6,10}-[bcdfghjklmnpqrstvwxz2456789]{5}\b"), "-<pod>"),
    # Covey's are six hexadecimal digits.
    (re.compile(r"-[0-9a-f]{6}\b"), "-<pod>"),
    # In pictures: which of equal replicas has a node.
    (re.compile(r"\b([A-Z])\d+(?= +│)"), r"\1<number>"),
)


def agrees(shown: str, printed: str) -> bool:
    """Whether a page shows what was printed."""
    return re.fullmatch(_pattern(shown), _plain(printed)) is not None


def difference(shown: str, printed: str) -> str:
    """What a person compares: both, line by line."""
    lines = difflib.unified_diff(_lines(shown), _lines(printed), "the page shows", "it printed", lineterm="", n=20)
    return "\n".join(lines)


def _pattern(shown: str) -> str:
    found = []
    for line in _lines(shown):
        if line == ELLIPSIS:
            found.append(r"(?:.*\n)*?")
        else:
            found.append(".*".join(map(re.escape, line.split(ELLIPSIS))) + r"\n")
    return "".join(found)


def _plain(text: str) -> str:
    return "".join(f"{line}\n" for line in _lines(text))


def _lines(text: str) -> list[str]:
    return [_formed(line) for line in text.strip("\n").splitlines()]


def _formed(line: str) -> str:
    for pattern, form in _FORMS:
        line = pattern.sub(form, line)
    return " ".join(line.split())

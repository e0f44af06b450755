"""Latency over time, as lines of text and as a picture."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from routed.requests import Request

#: Moments worth a line, in seconds from the beginning.
Moments = Sequence[tuple[float, str]]
_BAR: Final = 24
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 760, 300, 66, 52, 248
_COLOURS: Final = ("p", "d", "r")


def draw_lines(requests: Sequence[Request], moments: Moments, names: Mapping[str, str]) -> Iterator[str]:
    """Draw a line for each second: the median, the slowest, and which revisions answered.

    Args:
        requests: all of them.
        moments: are put between the lines.
        names: of revisions, by the images of both roles.
    """
    seconds: dict[int, list[Request]] = {}
    for each in requests:
        seconds.setdefault(int(each.at), []).append(each)
    most = max((_median(found) for found in seconds.values()), default=0.0)
    left = list(moments)
    for second, found in sorted(seconds.items()):
        while left and left[0][0] < second + 1:
            yield f"          -- {left.pop(0)[1]}"
        shares = Counter(names.get(each.images, "none") for each in found)
        told = ", ".join(f"{name} x {count}" for name, count in sorted(shares.items()))
        bar = "█" * round(_median(found) / most * _BAR)
        slowest = max(each.seconds for each in found)
        yield f"  {second:4d} s  {bar:<{_BAR}} {_median(found) * 1000:4.0f} ms (slowest {slowest * 1000:4.0f})  {told}"


def _median(found: Sequence[Request]) -> float:
    return statistics.median(each.seconds for each in found)


def draw_svg(requests: Sequence[Request], moments: Moments, names: Mapping[str, str], words: str) -> str:
    """Draw a dot for each request, at its time and as high as it took long, in the colour of its revisions."""
    end = max(each.at for each in requests)
    top = max((each.seconds for each in requests), default=0) + 0.05

    def x(at: float) -> int:
        return round(_LEFT + at / end * (_WIDTH - _LEFT - 20))

    def y(seconds: float) -> int:
        return round(_BOTTOM - seconds / top * (_BOTTOM - _TOP))

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-labelledby="t d">',
        '<title id="t">Latency through two rollouts</title>',
        f'<desc id="d">{words}</desc>',
        "<style>",
        "svg{--paper:#fff;--ink:#1f2933;--soft:#56616f;--line:#c5ccd6;--p:#2563c9;--d:#b4540a;--r:#3b7a4b}",
        "@media (prefers-color-scheme:dark){",
        "svg{--paper:#1b1f26;--ink:#e6e9ee;--soft:#a3adba;--line:#454d59;--p:#7fb0ff;--d:#ffab6b;--r:#83cf97}}",
        'text{font:13px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:var(--soft)}',
        ".b{font-weight:600;fill:var(--ink)}.e{text-anchor:end}.paper{fill:var(--paper);stroke:var(--line)}",
        ".line{fill:none;stroke:var(--line)}.p{--c:var(--p)}.d{--c:var(--d)}.r{--c:var(--r)}",
        "path{fill:none;stroke:var(--c);stroke-width:4;stroke-linecap:round}text.k{fill:var(--c);font-weight:600}",
        "</style>",
        f'<rect class="paper" x=".5" y=".5" width="{_WIDTH - 1}" height="{_HEIGHT - 1}" rx="6"/>',
    ]
    for tenth in range(0, int(top * 10) + 1, 1 if top < 0.6 else 2):
        lines += [
            f'<path class="line" style="stroke:var(--line);stroke-width:1" d="M{_LEFT} {y(tenth / 10)}H{_WIDTH - 20}"/>',
            f'<text class="e" x="{_LEFT - 8}" y="{y(tenth / 10) + 4}">{tenth * 100} ms</text>',
        ]
    for second in range(0, int(end) + 1, 5):
        lines.append(f'<text x="{x(second)}" y="{_BOTTOM + 18}">{second} s</text>')
    for at, what in moments:
        lines += [
            f'<path style="stroke:var(--soft);stroke-width:1;stroke-dasharray:4 4" d="M{x(at)} {_TOP - 8}V{_BOTTOM}"/>',
            f'<text x="{x(at)}" y="{_TOP - 14}">{what}</text>',
        ]
    place = _LEFT
    for (images, name), colour in zip(names.items(), _COLOURS, strict=True):
        dots = "".join(f"M{x(each.at)} {y(each.seconds)}h0" for each in requests if each.images == images)
        lines += [
            f'<path class="{colour}" d="{dots}"/>',
            f'<text class="k {colour}" x="{place}" y="{_BOTTOM + 40}">● {name}</text>',
        ]
        place += 200
    lines += [f'<text class="b" x="{_LEFT}" y="20">{words}</text>', "</svg>", ""]
    return "\n".join(lines)

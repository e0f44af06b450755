"""The live tree on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text
from rich.tree import Tree

from covey.cli.render.words import BAD, DIM, GOOD
from covey.cli.watching.branch import Branch, State

_MARKS = {
    State.READY: ("✓", GOOD),
    State.STARTING: ("◐", "yellow"),
    State.HELD: ("◆", "yellow"),
    State.WAITING: ("○", "yellow"),
    State.FAILED: ("✗", BAD),
}
#: So many pods with the same state and reason are listed; more are counted.
_PODS = 4


def print_branch(branch: Branch, console: Console, *, whole: bool) -> None:
    """Print the tree; without ``whole``, what is well is one line without children."""
    tree = Tree(_label(branch), guide_style=DIM)
    _grow(tree, branch, whole=whole)
    console.print(tree, soft_wrap=True)


def _grow(tree: Tree, branch: Branch, *, whole: bool) -> None:
    if branch.state is State.READY and not whole:
        return
    alike: dict[tuple[str, str, str], list[Branch]] = {}
    for child in branch.children:
        key = (child.name, "", "") if child.kind != "pod" else ("", child.state.value, _general(child))
        alike.setdefault(key, []).append(child)
    for group in alike.values():
        for child in group if len(group) <= _PODS else group[:1]:
            _grow(tree.add(_label(child)), child, whole=whole)
        if len(group) > _PODS:
            tree.add(Text(f"and {len(group) - 1} more pods likewise", DIM))


def _general(pod: Branch) -> str:
    """The reason without the pod's own node, so that like pods are counted together."""
    return pod.reason.replace(pod.placement, "") if pod.placement else pod.reason


def _label(branch: Branch) -> Text:
    mark, style = _MARKS[branch.state]
    kind = "" if branch.kind in ("inference", "role", "pod") else f"{branch.kind} "
    label = Text(f"{mark} ", style).append(kind, DIM).append(branch.name, "" if branch.kind == "pod" else "bold")
    if branch.kind != "pod":
        label.append(f"  {branch.ready}/{branch.total} ready")
    if branch.minimum is not None:
        label.append(f"  minimum {branch.minimum}", DIM)
    if branch.placement:
        label.append(f"  {branch.placement}", DIM)
    if branch.reason:
        label.append(f"  {branch.reason}", style if branch.state is not State.READY else "")
    return label

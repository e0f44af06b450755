"""The live tree on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text
from rich.tree import Tree

from covey.api.inference import DisaggregatedInference
from covey.cli.render.objects import BAD, DIM, GOOD
from covey.cli.render.tables import columns, show
from covey.watching.advice import Advice
from covey.watching.status_tree import StatusTree, TreeState, branches_with_reason

_MARKS = {
    TreeState.READY: ("✓", GOOD),
    TreeState.SERVING: ("✓", GOOD),
    TreeState.STARTING: ("◐", "yellow"),
    TreeState.HELD: ("◆", "yellow"),
    TreeState.WAITING: ("○", "yellow"),
    TreeState.FAILED: ("✗", BAD),
}
#: What is counted of a node of the tree: Ready is the condition's, and whatever has its minimum Ready serves.
_COUNTED = {"inference": "units serve", "unit": "roles serve", "role": "replicas Ready", "replica": "pods Ready"}
#: So many pods of which the same is to be said are listed; more are counted.
_PODS = 8


def print_branch(branch: StatusTree, console: Console, *, whole: bool) -> None:
    """Print the tree; without ``whole``, what has nothing to say is one line without children."""
    tree = Tree(_label(branch), guide_style=DIM)
    _grow(tree, branch, whole=whole)
    console.print(tree)


def print_advice(advice: Sequence[Advice], console: Console) -> None:
    """Print the meaning of reasons, and what to do about them; nothing where there is none."""
    for entry in advice:
        console.print()
        console.print(Text(entry.reason, "bold").append(f"  {entry.meaning}", ""))
        if entry.remedy:
            console.print(Padding(Text(f"→ {entry.remedy}", GOOD), (0, 0, 0, 2), expand=False))


def print_headroom(inference: DisaggregatedInference, console: Console) -> None:
    """Print how many replicas of each role could have places, if somebody has asked: of the resource, not of one unit."""
    status = inference.status
    if status is None or status.headroom is None:
        return
    console.print()
    console.print(Text("head-room", "bold").append(f"  as of {status.headroom.observed_at}", DIM))
    for row in status.roles:
        if row.max_feasible is not None:
            text = f"{row.name}  {row.max_feasible:,} replicas could be assigned nodes, {row.admitted:,} are"
            console.print(Text(f"  {text}"), soft_wrap=True)
    if status.headroom.message:
        console.print(Text(f"  {status.headroom.message}"), soft_wrap=True)


def print_preemptions(sentences: Sequence[str], console: Console) -> None:
    """Print who has given way, or is about to; nothing where nobody does."""
    if sentences:
        console.print()
        console.print(Text("preemptions", "bold"))
    for sentence in sentences:
        console.print(Text(f"  {sentence}"), soft_wrap=True)


def print_branches(branches: Sequence[StatusTree], console: Console, *, heads: bool = True) -> None:
    """A line for each resource, with the first thing that there is to say about it."""
    table = columns("NAMESPACE", "NAME", "READY", "STATE", "REASON")
    for branch in branches:
        namespace, _, name = branch.name.partition("/")
        state = Text(branch.state.value, _MARKS[branch.state][1])
        reason = next((child.reason for child in branches_with_reason(branch)), "")
        table.add_row(namespace, name, f"{branch.ready}/{branch.total}", state, reason)
    show(table, console, heads=heads)


def _grow(tree: Tree, branch: StatusTree, *, whole: bool) -> None:
    if not whole and not any(branches_with_reason(branch)):
        return
    alike: dict[tuple[str, str, str], list[StatusTree]] = {}
    for child in branch.children:
        key = (child.name, "", "") if child.kind != "pod" else ("", child.state.value, _general(child))
        alike.setdefault(key, []).append(child)
    most = _PODS if whole else 1
    for group in alike.values():
        for child in group if len(group) <= most else ():
            _grow(tree.add(_label(child)), child, whole=whole)
        if len(group) > most:
            tree.add(_many(group))


def _many(pods: Sequence[StatusTree]) -> Text:
    """Pods of which the same is to be said."""
    mark, style = _MARKS[pods[0].state]
    text = Text(f"{mark} ", style).append(f"{len(pods)} pods, such as {pods[0].name}", DIM)
    return text.append(f"  {pods[0].reason}", style) if pods[0].reason else text


def _general(pod: StatusTree) -> str:
    """The reason without the pod's own node, so that like pods are counted together."""
    return pod.reason.replace(pod.placement, "") if pod.placement else pod.reason


def _label(branch: StatusTree) -> Text:
    mark, style = _MARKS[branch.state]
    kind = "" if branch.kind in ("inference", "role", "pod") else f"{branch.kind} "
    label = Text(f"{mark} ", style).append(kind, DIM).append(branch.name, "" if branch.kind == "pod" else "bold")
    if branch.kind != "pod":
        label.append(f"  {branch.ready}/{branch.total} {_COUNTED[branch.kind]}")
    if branch.minimum is not None:
        label.append(f"  minimum {branch.minimum}", DIM)
    if branch.placement:
        label.append(f"  {branch.placement}", DIM)
    if branch.reason:
        label.append(f"  {branch.reason}", style if branch.state is not TreeState.READY else "")
    return label

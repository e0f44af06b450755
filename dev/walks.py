"""Counts the files that one decision passes through: a lost pod, a refusal, a step of a rollout.

Each is played once on the stages of the unit tests, and a profile of the interpreter notes the files of the product in
which a function is entered.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

from builders.inferences import llama, template
from builders.members import cache, node, pod
from scheduler_loop import Loop, tree
from unit.operator.test_rolling import serve
from unit.operator.world import World

PRODUCT: Final = str(Path(__file__).resolve().parent.parent / "operator" / "covey")


def files_entered(walk: Callable[[], object]) -> list[str]:
    """The files of the product in which functions are entered while something is done, by name."""
    entered: set[CodeType] = set()

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            entered.add(frame.f_code)

    sys.setprofile(note)
    try:
        walk()
    finally:
        sys.setprofile(None)
    inside = {code.co_filename for code in entered if code.co_filename.startswith(PRODUCT)}
    return sorted(name.removeprefix(f"{PRODUCT}/") for name in inside)


def lost_pod() -> list[str]:
    """A pod of a resource that runs is lost: the pass that replaces its replica."""
    world = _running()
    world.delete(min(world.pods))
    return files_entered(lambda: (world.plan(), world.tell()))


def rollout_step() -> list[str]:
    """The template of a role has changed: the pass that begins the rollout."""
    world = _running()
    world.inference = llama(decode={"template": template(nodeSelector={"new": "yes"})})
    return files_entered(lambda: (world.plan(), world.tell()))


def refusal() -> list[str]:
    """A gang comes that does not fit: from its pods to the refusal, in the scheduler process."""
    loop = Loop(cache(node("n1"), pod("occupant", node="n1", gpus=8), *tree("one")))
    return files_entered(lambda: asyncio.run(loop.turn()))


def _running() -> World:
    world = World(llama())
    world.settle()
    serve(world)
    world.tell()
    return world


WALKS: Final = {"lost pod": lost_pod, "refusal": refusal, "step of a rollout": rollout_step}

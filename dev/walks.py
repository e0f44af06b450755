"""Record the functions that one decision enters: a lost pod, a refusal, a step of a rollout.

Each is played once on the stages of the unit tests, under a profile of the interpreter.
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
from unit.operator.world import World

PRODUCT: Final = str(Path(__file__).resolve().parent.parent / "operator" / "covey")


def functions_entered(walk: Callable[[], object]) -> list[CodeType]:
    """The functions of the product that are entered while something is done."""
    entered: set[CodeType] = set()

    def note(frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PRODUCT):
            entered.add(frame.f_code)

    sys.setprofile(note)
    try:
        walk()
    finally:
        sys.setprofile(None)
    functions = (code for code in entered if not code.co_name.startswith("<"))
    return sorted(functions, key=lambda code: (code.co_filename, code.co_firstlineno))


def lost_pod() -> list[CodeType]:
    """A pod of a resource that runs is lost: the pass that replaces its replica."""
    world = _running()
    world.delete(min(world.pods))
    return functions_entered(lambda: (world.plan(), world.tell()))


def rollout_step() -> list[CodeType]:
    """The template of a role has changed: the pass that begins the rollout."""
    world = _running()
    world.inference = llama(decode={"template": template(nodeSelector={"new": "yes"})})
    return functions_entered(lambda: (world.plan(), world.tell()))


def refusal() -> list[CodeType]:
    """A gang comes that does not fit: from its pods to the refusal, in the scheduler process."""
    loop = Loop(cache(node("n1"), pod("occupant", node="n1", gpus=8), *tree("one")))
    return functions_entered(lambda: asyncio.run(loop.turn()))


def _running() -> World:
    world = World(llama())
    world.settle()
    world.serve()
    world.tell()
    return world


WALKS: Final = {"lost pod": lost_pod, "refusal": refusal, "step of a rollout": rollout_step}

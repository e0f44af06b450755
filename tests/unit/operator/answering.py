"""The scheduler process, as far as it answers who must go for whom."""

from __future__ import annotations

import msgspec

from covey.api import constants as names
from covey.api import core
from covey.api.succession import SuccessionQuestion, read_question
from covey.kube.resources import COMPOSITE_POD_GROUPS
from unit.operator.world import World


def question_of(world: World, unit: int = 0) -> SuccessionQuestion | None:
    """The question that stands on a root, once the operator has written what it asks now."""
    world.note()
    root = world.objects[COMPOSITE_POD_GROUPS.type, f"llama-{unit}"]
    return read_question(root.metadata.annotation(names.ANNOTATION_SUCCESSION))


def refuse(world: World, unit: int = 0, reason: str = "Infeasible", message: str = "no node is left") -> None:
    """None of those that wait has places, whatever goes."""
    question = question_of(world, unit)
    assert question is not None, "nothing is asked"
    told = (core.SuccessorStatus(*members[0][:2], reason, message) for members in question.sets)
    answer(world, core.GroupSuccession(question.asked, tuple(told)), unit)


def prove(world: World, unit: int = 0) -> None:
    """Each set that waits has its places once the first one of each of its roles is gone."""
    question = question_of(world, unit)
    assert question is not None, "nothing is asked"
    told = []
    for members in question.sets:
        victims = []
        for member in members:
            old = question.predecessors[member.role]
            number = [*old.idle, *old.serving[: old.most]][0]
            victims.append(victim_of(world, unit, member.role, number))
        told.append(core.SuccessorStatus(*members[0][:2], victims=tuple(victims)))
    answer(world, core.GroupSuccession(question.asked, tuple(told)), unit)


def victim_of(world: World, unit: int, role: str, number: int) -> core.Victim:
    """A replica with the pods that it has."""
    slots = world.observe().in_unit(unit)
    uids = tuple(pod.metadata.uid for slot, pod in slots.items() if (slot.role, slot.replica) == (role, number))
    return core.Victim("Replica", "ml", "llama", unit, role, number, uids)


def answer(world: World, told: core.GroupSuccession, unit: int = 0) -> None:
    """Write an answer on a root."""
    key = (COMPOSITE_POD_GROUPS.type, f"llama-{unit}")
    status = msgspec.structs.replace(world.objects[key].status, succession=told)
    world.objects[key] = msgspec.structs.replace(world.objects[key], status=status)

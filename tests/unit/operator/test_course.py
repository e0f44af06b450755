"""What becomes of a pod, whoever asks: one answer for a snapshot, whatever the watch shows."""

from __future__ import annotations

from typing import Any

import pytest

from builders.inferences import inference, role
from covey.api import constants as names
from covey.api.core import rfc3339
from covey.operator.model import podstate
from covey.operator.model.podstate import Course
from unit.operator.world import World

DRAINING = {names.ANNOTATION_DRAINING_SINCE: "2026-01-01T00:00:00Z"}
DELETED = {"deletion_timestamp": rfc3339(0)}


def world_with(**parts: dict[str, Any]) -> World:
    """One pod that serves, but for what is said of it."""
    world = World.settled(inference(role("decode")))
    (name,) = world.pods
    world.bind(name)
    world.ready(name)
    world.change(name, **parts)
    return world


@pytest.mark.parametrize(
    ("parts", "condemned", "course"),
    [
        ({}, False, Course.STAYS),
        ({"metadata": {"annotations": DRAINING}}, False, Course.DRAINS),
        ({"metadata": {"annotations": DRAINING, **DELETED}}, False, Course.GOES),
        ({"metadata": DELETED}, False, Course.GOES),
        ({}, True, Course.GOES),
        ({"metadata": {"annotations": DRAINING}}, True, Course.GOES),
        ({"status": {"phase": "Failed"}}, False, Course.ENDED),
        ({"status": {"phase": "Failed"}}, True, Course.GOES),
    ],
)
def test_a_pod_of_a_snapshot_has_one_course(parts: dict[str, Any], condemned: bool, course: Course) -> None:  # noqa: FBT001 - a case
    world = world_with(**parts)
    world.condemned = {pod.metadata.uid for pod in world.pods.values() if condemned}
    (pod,) = world.observe().every_pod()
    assert podstate.course(pod) is course
    assert podstate.is_going(pod) is (course is Course.GOES)
    assert podstate.is_dead(pod) is (course in {Course.GOES, Course.ENDED})
    assert podstate.is_ready(pod) is (course is Course.STAYS)

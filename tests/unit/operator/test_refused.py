"""Refusals that keep nothing else from being done: records, budgets and notes, and pods that cannot be created."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec
import pytest

from builders.inferences import inference, role, template
from covey.api import constants as names
from covey.compile import compile_inference
from covey.kube.client import Client
from covey.kube.errors import AlreadyExists, ApiError, Forbidden, Invalid, NotFound
from covey.kube.resources import POD_DISRUPTION_BUDGETS, PODS, Resource
from covey.operator.model.actions import Actions, Annotate, DeleteObject, Mark
from covey.operator.model.objects import CONTROLLER_REVISIONS
from covey.operator.model.problem import REASON_NAME_TAKEN, Blocked
from covey.operator.observe.templates import TemplateCheck
from unit.operator.test_execute import DENIED, Server, execute
from unit.operator.world import World


def new_record(world: World) -> Mapping[str, Any]:
    stored = World(world.inference).plan().actions.store
    assert stored is not None
    return {**stored, "metadata": {**stored["metadata"], "name": "llama-taken"}}


RECORDS = CONTROLLER_REVISIONS.plural
BUDGETS = POD_DISRUPTION_BUDGETS.plural
QUOTA = Forbidden(403, "Forbidden", 'pods "x" is forbidden: exceeded quota: gpus')
IMMUTABLE = Invalid(
    422,
    "Invalid",
    'ControllerRevision.apps "llama-1" is invalid: data: Invalid value: {}: field is immutable',
    {"causes": [{"reason": "FieldValueInvalid", "field": "data"}]},
)
POLICY = Invalid(422, "Invalid", "ValidatingAdmissionPolicy 'records' with binding 'all' denied request: hands off")
RECORD = {
    "metadata": {
        "name": "llama-1",
        "namespace": "ml",
        "uid": "uid-1",
        "labels": {"team": "search"},
        "annotations": {"example.com/kept": "yes"},
        "ownerReferences": [{"name": "llama", "uid": "uid-llama", "controller": True}],
    },
    "revision": 4,
    "data": {"format": 2, "args": ["a && b"]},
}
FAILED = Mark("llama-1", "uid-1", failed=True)
NOTE = Annotate(PODS.type, "llama-x", "uid-x", {"covey.dev/started": "now"})


class Registry(Server):
    """Refuses by verb and kind, and has one ControllerRevision."""

    def __init__(self, world: World, refused: Mapping[tuple[str, str], Exception] | None = None) -> None:
        super().__init__(world)
        self.refused = dict(refused or {})
        self.record: dict[str, Any] | None = RECORD
        self.records: list[Mapping[str, Any]] = []

    def _check(self, verb: str, resource: Resource) -> None:
        if error := self.refused.get((verb, resource.plural)):
            raise error

    async def create(self, resource: Resource, body: Mapping[str, Any], *_: Any, type: Any, **__: Any) -> Any:  # noqa: A002 - Client's
        self._check("create", resource)
        if resource.plural == RECORDS:
            self.records.append(body)
        return await super().create(resource, body, type=type)

    async def merge_patch(self, resource: Resource, name: str, *_: Any, manager: str = "", **__: Any) -> Any:
        self._check("note" if manager == names.MANAGER_OPERATOR_NOTES else "patch", resource)
        self.patched.append(name)

    async def delete(self, resource: Resource, name: str, *_: Any, **__: Any) -> None:
        self._check("delete", resource)
        self.deleted.append(name)

    async def get(self, _: Resource, name: str, *__: Any, type: Any = None, **___: Any) -> Any:  # noqa: A002 - Client's
        if self.record is None:
            raise NotFound(404, "NotFound", name)
        body = {**self.record, "metadata": {**self.record["metadata"], "name": name}}
        return body if type is None else msgspec.convert({"metadata": {"name": name, "uid": "theirs"}}, type)


@pytest.fixture
def world() -> World:
    """A resource that serves."""
    return World.serving(inference(role("prefill", size=2), role("decode", replicas=3)))


def repair(world: World, **more: Any) -> Actions:
    """A lost pod is made anew, and what else is to be done."""
    world.vanish(world.name_at("0-decode-1-0"))
    planned = world.plan().actions
    return Actions(create=planned.create, factory=planned.factory, **more)


@pytest.mark.parametrize(
    ("verb", "kind", "more"),
    [
        ("note", "pods", {"annotate": (NOTE,)}),
        ("patch", RECORDS, {"mark": (FAILED,)}),
        ("delete", RECORDS, {"delete_objects": (DeleteObject(CONTROLLER_REVISIONS.type, "llama-0", "uid-0"),)}),
        ("delete", BUDGETS, {"delete_objects": (DeleteObject(POD_DISRUPTION_BUDGETS.type, "llama-gang", "uid-0"),)}),
    ],
)
async def test_a_denied_note_mark_or_deletion_keeps_no_pod_from_being_made(
    world: World, verb: str, kind: str, more: dict[str, Any]
) -> None:
    server = Registry(world, {(verb, kind): DENIED})
    with pytest.raises(Blocked, match="hands off"):
        await execute(world, server, repair(world, **more))
    assert server.created == ["0-decode-1-0"]


async def test_refusals_are_told_together(world: World) -> None:
    """The reason is the pod's; the others stand in the message."""
    refused = {("create", "pods"): QUOTA, ("patch", RECORDS): DENIED, ("note", "pods"): DENIED}
    server = Registry(world, refused)
    with pytest.raises(Blocked) as blocked:
        await execute(world, server, repair(world, mark=(FAILED,), annotate=(NOTE,)))
    problem = blocked.value.problem
    assert problem.reason == names.REASON_QUOTA_EXCEEDED
    assert "exceeded quota" in problem.message
    assert "hands off" in problem.message
    assert "and 1 more" in problem.message
    assert problem.retry


@pytest.mark.parametrize("error", [POLICY, Forbidden(403, "Forbidden", "no such right")])
async def test_a_record_that_a_policy_guards_is_left_alone(world: World, error: Exception) -> None:
    """It could be deleted, and nobody says that it may be created again."""
    server = Registry(world, {("patch", RECORDS): error})
    with pytest.raises(Blocked):
        await execute(world, server, Actions(mark=(FAILED,)))
    assert not server.deleted
    assert not server.records


async def test_a_record_that_has_gone_meanwhile_is_no_failure(world: World) -> None:
    server = Registry(world, {("patch", RECORDS): IMMUTABLE})
    server.record = None
    await execute(world, server, repair(world, mark=(FAILED,)))
    assert not server.records
    assert server.created == ["0-decode-1-0"]


MAY_PASS = Forbidden(403, "Forbidden", "no PriorityClass with name high was found")


class Asked:
    """Gives the same answer to every dry run, and counts them."""

    def __init__(self, answer: ApiError | None) -> None:
        self.answer = answer
        self.count = 0
        self.bodies: list[dict[str, Any]] = []
        self.now = 0.0
        self.check = TemplateCheck(cast("Client", self), clock=lambda: self.now)

    async def create(self, _resource: object, body: dict[str, Any], *, type: type[Any], **_: Any) -> Any:  # noqa: A002
        self.count += 1
        self.bodies.append(body)
        if self.answer is not None:
            raise self.answer
        return msgspec.convert(body | {"spec": {"priority": 1000}}, type)

    async def at(self, now: float, image: str = "one", **container: Any) -> bool:
        """Whether there is a problem at some time with a template of one role of single pods."""
        self.now = now
        containers = [{"name": "engine", "image": image, **container}]
        tree = compile_inference(inference(role("r", template=template(containers=containers))))
        return await self.check.find_problem(tree, counted=True) is not None


async def test_what_may_pass_is_asked_again_with_back_off() -> None:
    asked = Asked(MAY_PASS)
    counts = []
    for now in (0, 0.5, 1, 2.5, 3, 6.5, 7):
        assert await asked.at(now)
        counts.append(asked.count)
    assert counts == [1, 1, 2, 2, 3, 3, 4]
    asked.answer = None
    assert not await asked.at(100)


async def test_priority_of_pods_when_the_api_server_takes_one_of_their_class_is_what_it_says() -> None:
    asked = Asked(MAY_PASS)
    assert await asked.at(0)
    assert asked.check.find_priority(None) == 0
    asked.answer = None
    assert not await asked.at(100)
    assert [asked.check.find_priority(name) for name in (None, "high")] == [1000, 0]


@pytest.mark.parametrize("container", [{"resources": None}, {"env": None}, {"imagePullPolicy": None}, {"image": None}])
async def test_a_field_without_a_value_is_no_wrong_type_once_the_api_server_takes_it(container: dict[str, Any]) -> None:
    asked = Asked(None)
    assert not await asked.at(0, **container)
    assert "COVEY_ROLE" in {each["name"] for each in asked.bodies[-1]["spec"]["containers"][0]["env"]}


async def test_a_record_whose_name_is_taken_keeps_no_pod_from_being_made(world: World) -> None:
    server = Registry(world, {("create", RECORDS): AlreadyExists(409, "AlreadyExists", "llama-1")})
    with pytest.raises(Blocked) as blocked:
        await execute(world, server, repair(world, store=new_record(world)))
    assert server.created == ["0-decode-1-0"]
    assert blocked.value.problem.reason == REASON_NAME_TAKEN

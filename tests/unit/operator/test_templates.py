"""When the API server is asked about a template again."""

from typing import Any, cast

import pytest

from builders.inferences import inference, role, template
from covey.compile import compile_inference
from covey.kube.client import Client
from covey.kube.errors import ApiError, Forbidden, Invalid
from covey.operator.observe.templates import TemplateCheck

MAY_PASS = Forbidden(403, "Forbidden", "no PriorityClass with name high was found")


class Asked:
    """Gives the same answer to every dry run, and counts them."""

    def __init__(self, answer: ApiError | None) -> None:
        self.answer = answer
        self.count = 0
        self.bodies: list[dict[str, Any]] = []
        self.now = 0.0
        self.check = TemplateCheck(cast("Client", self), clock=lambda: self.now)

    async def create(self, _resource: object, body: dict[str, Any], **_: Any) -> None:
        self.count += 1
        self.bodies.append(body)
        if self.answer is not None:
            raise self.answer

    async def at(self, now: float, image: str = "one", **container: Any) -> bool:
        """Whether there is a problem at some time with a template of one role of single pods."""
        self.now = now
        containers = [{"name": "engine", "image": image, **container}]
        tree = compile_inference(inference(role("r", template=template(containers=containers))))
        return await self.check.find_problem(tree, counted=True) is not None


@pytest.mark.parametrize("answer", [None, Invalid(422, "Invalid", "spec.containers: too bad")])
async def test_what_only_another_template_can_change_is_asked_once(answer: ApiError | None) -> None:
    asked = Asked(answer)
    assert [await asked.at(now) for now in (0, 1, 10_000)] == [answer is not None] * 3
    assert asked.count == 1
    await asked.at(10_000, "two")
    assert asked.count == 2


async def test_what_may_pass_is_asked_again_with_back_off() -> None:
    asked = Asked(MAY_PASS)
    counts = []
    for now in (0, 0.5, 1, 2.5, 3, 6.5, 7):
        assert await asked.at(now)
        counts.append(asked.count)
    assert counts == [1, 1, 2, 2, 3, 3, 4]
    asked.answer = None
    assert not await asked.at(100)


WRONG_TYPES: tuple[dict[str, Any], ...] = (
    {"resources": "none"},
    {"resources": {"limits": ["nvidia.com/gpu"]}},
    {"env": 7},
    {"env": "DEBUG=1"},
    {"env": ["DEBUG=1"]},
    {"env": [None]},
)


@pytest.mark.parametrize("container", WRONG_TYPES)
async def test_a_template_of_wrong_types_is_asked_about_as_it_is(container: dict[str, Any]) -> None:
    asked = Asked(Invalid(400, "BadRequest", "cannot unmarshal string into Go struct field Container"))
    assert await asked.at(0, **container)
    [body] = asked.bodies
    assert body["spec"]["containers"] == [{"name": "engine", "image": "one", **container}]


@pytest.mark.parametrize("container", [{"resources": None}, {"env": None}, {"imagePullPolicy": None}, {"image": None}])
async def test_a_field_without_a_value_is_no_wrong_type_once_the_api_server_takes_it(container: dict[str, Any]) -> None:
    asked = Asked(None)
    assert not await asked.at(0, **container)
    assert "COVEY_ROLE" in {each["name"] for each in asked.bodies[-1]["spec"]["containers"][0]["env"]}

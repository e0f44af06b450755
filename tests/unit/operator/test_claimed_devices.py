"""What claims would ask for is judged, and charged, before there are pods."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, cast

import msgspec
import pytest

from builders.devices import DRIVER, class_body, request_body, wish_body
from builders.inferences import inference, role, template
from covey.api import constants as names
from covey.api import core
from covey.compile import compile_inference
from covey.kube.client import Client
from covey.kube.clock import SYSTEM
from covey.kube.errors import ApiError, BadRequest, Forbidden, NotFound
from covey.kube.events import EventRecorder
from covey.kube.resources import Resource
from covey.observability import metrics
from covey.operator.model.problem import Problem
from covey.operator.observe.caches import Caches
from covey.operator.observe.devices import read_charges
from covey.operator.observe.templates import TemplateCheck
from covey.operator.observe.watched import Requeue
from covey.operator.reconcile import Reconciler
from covey.operator.resource_quota.charge import Amounts, amounts_of_claim, charge_of_claims
from covey.operator.status.gauges import WorkloadGauges
from covey.placement.cluster.device_claims import unmade_claims
from scrapes import Scrape
from unit.operator.test_quota import plan_with, quota
from unit.operator.world import World

DEVICES = f"{DRIVER}.deviceclass.resource.k8s.io/devices"
OF_TEMPLATE = {"name": "gpus", "resourceClaimTemplateName": "t"}
NAMED = {"name": "gpus", "resourceClaimName": "c"}


class Stored:
    """What an API server would answer; it takes every pod, unless there is a ``denial``."""

    def __init__(self, *classes: dict[str, Any], template: Any = None, claim: Any = None) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {
            ("deviceclasses", each["metadata"]["name"]): each for each in classes
        }
        if template is not None:
            self.objects["resourceclaimtemplates", "t"] = {"metadata": {"name": "t"}, "spec": {"spec": template}}
        if claim is not None:
            self.objects["resourceclaims", "c"] = {"metadata": {"name": "c", "namespace": "default"}, **claim}
        self.refusal: ApiError | None = None
        self.denial: ApiError | None = None
        self.asked: list[str] = []
        self.now = 0.0
        self.check = TemplateCheck(cast("Client", self), clock=lambda: self.now)

    async def create(self, _resource: object, body: dict[str, Any], *, type: type[Any], **_: Any) -> Any:  # noqa: A002
        if self.denial is not None:
            raise self.denial
        return msgspec.convert(body | {"spec": {}}, type)

    async def get(self, resource: Resource, name: str, _namespace: str | None = None, *, type: type[Any]) -> Any:  # noqa: A002
        self.asked.append(f"{resource.plural}/{name}")
        if self.refusal is not None:
            raise self.refusal
        found = self.objects.get((resource.plural, name))
        if found is None:
            raise NotFound(404, "NotFound", f'{resource.plural} "{name}" not found', {"name": name})
        return msgspec.convert(found, type)

    async def judge(
        self, *claims: Mapping[str, Any], replicas: int = 1, counted: bool = True, image: str = "e"
    ) -> Problem | None:
        made = template(containers=[{"name": "engine", "image": image}], resourceClaims=list(claims))
        tree = compile_inference(inference(role("r", template=made, replicas=replicas)))
        return await self.check.find_problem(tree, counted=counted)


def all_devices() -> dict[str, Any]:
    return request_body(1, allocationMode="All")


def first_of(*counts: int) -> dict[str, Any]:
    kinds = [{"name": f"k{count}", "deviceClassName": DRIVER, "count": count} for count in counts]
    return {"name": "r", "firstAvailable": kinds}


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (wish_body(all_devices()), "has request r with allocationMode All, which Covey cannot count: remove it"),
        (wish_body(first_of(1, 2)), "has request r without exactly: ask for one kind of device"),
        (wish_body(request_body(1, adminAccess=True)), "has request r with adminAccess, which Covey cannot count"),
        (wish_body(request_body(2), constraints=[{"matchAttribute": "x/y"}]), "has constraints between devices"),
        (wish_body(request_body(1, "device.driver.startsWith('g')")), "with selectors that Covey cannot judge"),
    ],
)
@pytest.mark.parametrize("named", [False, True])
async def test_what_cannot_be_counted_is_refused_by_name(wish: dict[str, Any], words: str, *, named: bool) -> None:
    stored = Stored(class_body(), template=wish, claim={"spec": wish})
    problem = await stored.judge(NAMED if named else OF_TEMPLATE)
    assert problem is not None
    assert (problem.reason, problem.retry, problem.may_pass) == (names.REASON_UNSUPPORTED, True, False)
    kind = "ResourceClaim c" if named else "ResourceClaimTemplate t"
    assert problem.message.startswith(f"role r: {kind} {words}" if words.startswith("has") else "role r: ")
    assert words in problem.message


async def test_a_class_that_is_missing_is_refused_by_name() -> None:
    problem = await Stored(template=wish_body(request_body(1))).judge(OF_TEMPLATE)
    assert problem is not None
    assert f"{DEVICES} is of DeviceClass {DRIVER}, which does not exist: create it" in problem.message


async def test_a_class_that_exists_is_the_scheduler_processs_to_judge() -> None:
    class_ = class_body(DRIVER, "device.driver.startsWith('g')")
    assert await Stored(class_, template=wish_body(request_body(1))).judge(OF_TEMPLATE) is None


@pytest.mark.parametrize("name", [["c"], {"c": "c"}])
async def test_a_name_that_is_no_text_is_refused_in_the_words_of_the_api_server(name: Any) -> None:
    stored = Stored()
    stored.denial = BadRequest(400, "BadRequest", "cannot unmarshal object into Go struct field resourceClaimName")
    problem = await stored.judge({"name": "gpus", "resourceClaimName": name}, replicas=2)
    assert problem is not None
    assert problem.reason == names.REASON_TEMPLATE_REJECTED


async def test_no_more_is_read_than_a_bound() -> None:
    kinds = [{"name": f"k{number}", "deviceClassName": f"c{number}"} for number in range(513)]
    stored = Stored(template=wish_body({"name": "r", "firstAvailable": kinds[:512]}))
    assert f"c511{DEVICES.removeprefix(DRIVER)}" in (await read_charges(cast("Client", stored), {("ml", "t")}))["t"]
    stored = Stored(template=wish_body({"name": "r", "firstAvailable": kinds}))
    problem = await stored.judge(OF_TEMPLATE)
    assert problem is not None
    assert problem.message == "role r: more than 512 deviceclasses are named, which Covey does not read"
    assert stored.asked == ["resourceclaimtemplates/t"]
    assert await read_charges(cast("Client", stored), {("ml", "t")}) == {}


async def test_the_template_of_a_compute_domain_is_not_waited_for() -> None:
    """NVIDIA's driver makes it of the domain, which is made together with the groups."""
    stored = Stored()
    spec = inference(role("r", interconnect=True), interconnect={"type": "ComputeDomain"})
    assert await stored.check.find_problem(compile_inference(spec), counted=True) is None
    assert stored.asked == []


def uncounted() -> float:
    return Scrape.parse(metrics.render().decode())("covey_claims_uncounted_total")


async def test_without_the_api_or_the_right_it_says_so() -> None:
    stored, before = Stored(), uncounted()
    stored.refusal = NotFound(404, "", "404 page not found")
    problem = await stored.judge(OF_TEMPLATE)
    assert problem is not None
    assert problem.message == "role r: resourceClaims need resource.k8s.io/v1, which is not served here"
    assert await read_charges(cast("Client", stored), {("ml", "t")}) == {}
    stored.refusal = Forbidden(403, "Forbidden", "cannot get resource")
    stored.now = 5.0
    problem = await stored.judge(OF_TEMPLATE)
    assert problem is not None
    assert (problem.reason, problem.retry) == ("RequestRefused", True)
    assert await read_charges(cast("Client", stored), {("ml", "t")}) == {}
    assert uncounted() == before + 2


# What claims are charged


def charged(*requests: dict[str, Any], known: bool = True) -> Amounts:
    classes = {DRIVER: msgspec.convert(class_body(), core.DeviceClass)} if known else {}
    return amounts_of_claim(msgspec.convert(wish_body(*requests), core.DeviceClaimSpec), classes)


def of(count: int, *, known: bool = True) -> Amounts:
    more = ("requests.nvidia.com/gpu", f"requests.deviceclass.resource.kubernetes.io/{DRIVER}") if known else ()
    return {"count/resourceclaims.resource.k8s.io": Fraction(1), **dict.fromkeys((DEVICES, *more), Fraction(count))}


def test_a_claim_is_charged_as_kubernetes_does() -> None:
    assert charged(request_body(4), request_body(2, "true")) == of(6)
    assert charged(request_body(4), known=False) == of(4, known=False)
    assert charged(all_devices()) == of(32)
    # Of several kinds the one that would take most of a class.
    assert charged(first_of(2, 8, 4), request_body(1)) == of(9)


def engine(**fields: Any) -> dict[str, Any]:
    spec = {"containers": [{"name": "engine", "image": "e:1"}], "resourceClaims": [OF_TEMPLATE]}
    return {"template": {"spec": spec}, **fields}


PAIR = (role("prefill", **engine()), role("decode", **engine()))


def test_claims_that_are_still_to_be_made_come_first() -> None:
    """Of pods that another resource has created a moment ago: no quota has charged for their claims yet."""
    pod = msgspec.convert({"metadata": {"name": "p"}, **template(resourceClaims=[OF_TEMPLATE])}, core.Pod)
    charges = {"t": of(8)}
    reserved = {charge_of_claims(unmade_claims(pod), charges): 2}
    found = plan_with(World(inference(*PAIR)), quota({DEVICES: "24"}), claim_charges=charges, reserved=reserved)
    assert not found.actions.create
    statuses = ({"name": "gpus", "resourceClaimName": "p-gpus-x"},)
    done = msgspec.convert({**msgspec.to_builtins(pod), "status": {"resourceClaimStatuses": statuses}}, core.Pod)
    assert not any(unmade_claims(done))


def counting() -> tuple[Reconciler, Caches]:
    client = cast("Client", Stored(class_body(), template=wish_body(request_body(4))))
    caches = Caches(client, Requeue(), clock=SYSTEM)
    return Reconciler(
        client, caches, cast("EventRecorder", None), cast("WorkloadGauges", None), clock=SYSTEM, features=()
    ), caches


@pytest.mark.parametrize("claims", [7, ["gpus"], [{"name": "gpus", "resourceClaimTemplateName": {"a": "t"}}]])
async def test_what_a_refused_template_claims_stops_nobody(claims: Any) -> None:
    """What was accepted before is completed meanwhile."""
    world = World.serving(inference(role("r", template=template(resourceClaims=[OF_TEMPLATE]))))
    world.inference = inference(role("r", template=template(resourceClaims=claims)))
    verdict = world.judge(Problem(names.REASON_TEMPLATE_REJECTED, "cannot unmarshal"))
    assert verdict.is_kept_up
    reconciler, _ = counting()
    observed = await reconciler._count_claims(("ml", "llama"), verdict, world.observe())
    assert observed.claim_charges == {"t": of(4)}

"""The plan of a pasted manifest."""

import json
from collections.abc import Callable

from playwright.sync_api import expect

from builders.files import inference, role
from localcluster import Cluster
from ui.screen import Screen

PREFILL = role("prefill", 2, 2, size=3, topology={"required": "rack"})


def test_what_fits_is_drawn_on_the_floor_and_nothing_is_written(screen: Screen, floor: Cluster, team: str) -> None:
    manifest = json.dumps(inference("dream", PREFILL, namespace=team, topology={"required": "block"}))
    answer = screen.plan(manifest)
    expect(answer.locator(".verdict")).to_have_text("It fits.")
    expect(answer).to_contain_text("prefill: 2 of 2 replicas, minimum 2")
    expect(screen.page.locator("#tree .run.planned")).to_have_count(6)
    expect(screen.page.locator('#tree [data-mark="chosen"]').first).to_be_visible()
    path = f"/apis/inference.covey.dev/v1alpha1/namespaces/{team}/disaggregatedinferences"
    assert floor.api("GET", path)["items"] == []
    screen.page.get_by_role("button", name="Clear").click()
    expect(screen.page.locator("#tree .run.planned")).to_have_count(0)


def test_a_rack_that_is_chosen_is_framed_in_the_colour_of_the_verdict(screen: Screen) -> None:
    answer = screen.plan(json.dumps(inference("one", role("w", 1, 1))))
    colour = answer.locator(".verdict").evaluate("each => getComputedStyle(each).color")
    rack = screen.page.locator('#tree .rack[data-mark="chosen"]')
    expect(rack.locator(".run.planned")).to_have_count(1)
    expect(rack).to_have_css("border-top-color", colour)


def test_what_does_not_fit_says_why_as_the_command_does(screen: Screen) -> None:
    answer = screen.plan(json.dumps(inference("huge", role("w", 40, 40))))
    expect(answer.locator(".verdict")).to_have_text("It does not fit.")
    expect(answer.locator(".message")).to_contain_text("nvidia.com/gpu")
    expect(screen.page.locator("#tree .run.planned")).to_have_count(0)


def test_bad_input_names_the_place(screen: Screen) -> None:
    field = screen.page.get_by_label("Manifest, YAML or JSON")
    answer = screen.plan("kind: DisaggregatedInference\n  spec: [")
    expect(answer.get_by_role("alert")).to_contain_text("line")
    expect(field).to_have_attribute("aria-invalid", "true")
    body = inference("llm", role("w", 1, 1))
    body["spec"]["roles"][0]["size"] = "many"
    screen.plan(json.dumps(body))
    expect(answer.get_by_role("alert")).to_contain_text("spec.roles[0].size")
    screen.plan("  ")
    expect(answer.get_by_role("alert")).to_contain_text("Paste a manifest")


def test_a_plan_stands_beside_what_runs(screen: Screen, create: Callable[..., str]) -> None:
    key = create("llm", role("w", 2, 1))
    expect(screen.pods(key)).to_have_count(2)
    screen.plan(json.dumps(inference("more", role("w", 3, 3))))
    expect(screen.page.locator("#tree .run.planned")).to_have_count(3)
    expect(screen.pods(key)).to_have_count(2)
    expect(screen.page.locator("#tree .run.faded")).to_have_count(2)

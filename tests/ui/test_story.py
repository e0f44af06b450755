"""A gang's story, as a list and along a time axis."""

import json
import re
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect

from builders.files import role
from localcluster import Cluster
from ui.screen import Screen


def test_the_story_tells_what_happened_in_its_order(screen: Screen, floor: Cluster, create: Callable[..., str]) -> None:
    key = create("llm", role("prefill", 2, 1), role("decode", 1, 1))
    expect(screen.stands(key)).to_contain_text("ready")
    panel = screen.select(key)
    for kind in ("created", "admitted", "bound", "ready"):
        expect(panel.locator(f'.event[data-kind="{kind}"]').first).to_be_attached()
    times = panel.locator(".event time").evaluate_all("all => all.map((each) => each.dateTime)")
    assert times == sorted(times, reverse=True), "the newest is first"
    assert "events" in (panel.locator(".axis svg").get_attribute("aria-label") or "")
    expect(panel.locator('.life[data-state="ready"]')).to_have_count(3)
    namespace = key.partition("/")[0]
    pods = floor.api("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    decode = next(pod for pod in pods if pod["metadata"]["labels"]["covey.dev/role"] == "decode")
    failed = {"status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource"}}
    before = panel.locator(".event").count()
    floor.api("PATCH", f"/api/v1/namespaces/{namespace}/pods/{decode['metadata']['name']}/status", failed)
    expect(panel.locator(".event").nth(before)).to_be_attached()
    expect(screen.stands(key)).to_contain_text("ready")


def test_a_unit_is_named_once_in_each_event(screen: Screen, create: Callable[..., str]) -> None:
    key = create("llm", role("w", 1, 1), replicas=2)
    expect(screen.stands(key)).to_contain_text("ready")
    panel = screen.select(key)
    expect(panel.locator('.event[data-kind="ready"]', has_text="unit 1").first).to_be_attached()
    words = panel.locator(".event .what").all_inner_texts()
    assert [each for each in words if each.count("unit 1") > 1] == []


def test_a_rollout_shows_how_far_it_is(screen: Screen, floor: Cluster, create: Callable[..., str]) -> None:
    key = create("llm", role("w", 3, 3))
    expect(screen.stands(key)).to_contain_text("ready")
    panel = screen.select(key)
    namespace, _, name = key.partition("/")

    def patch(*changes: tuple[str, object]) -> None:
        body = [{"op": "add", "path": f"/spec/{path}", "value": value} for path, value in changes]
        floor.kubectl("-n", namespace, "patch", "dinf", name, "--type=json", "-p", json.dumps(body))

    patch(("rollout", {"paused": True}), ("roles/0/template/spec/containers/0/image", "engine:2"))
    expect(panel.locator(".rollout")).to_contain_text("Rollout paused")
    expect(panel.locator(".rollout")).to_contain_text("3 still old")
    expect(screen.stands(key)).to_contain_text("rollout paused")
    patch(("rollout/paused", False))
    expect(panel.locator(".rollout")).to_have_count(0)
    expect(screen.stands(key)).to_contain_text("ready")
    expect(panel.locator('.event[data-kind="rollout"]').first).to_be_attached()


@pytest.fixture
def classes(floor: Cluster) -> Iterator[tuple[str, str]]:
    """The names of a low and of a high PriorityClass."""
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for name, value in (("spare", 1), ("online", 1000)):
        floor.api("POST", path, {"metadata": {"name": name}, "value": value})
    yield ("spare", "online")
    for name in ("spare", "online"):
        floor.api("DELETE", f"{path}/{name}")


def test_room_that_is_taken_is_told_on_both_sides(
    screen: Screen, create: Callable[..., str], classes: tuple[str, str]
) -> None:
    spare, online = classes
    at_once = {"delaySeconds": 0, "minRunSeconds": 0}
    decode = role("decode", 36, 1, drainSeconds=600)
    decode["template"]["spec"]["readinessGates"] = [{"conditionType": "covey.dev/serving"}]
    batch = create("batch", decode, priorityClassName=spare, preemption=at_once)
    expect(screen.gang(batch)).to_contain_text("36/36")
    chat = create("chat", role("decode", 1, 1), priorityClassName=online, preemption=at_once)
    panel = screen.select(chat)
    expect(panel.locator(".claim")).to_contain_text("Takes capacity")
    expect(panel.locator(".claim")).to_contain_text(re.compile(r"Preemption.*takes decode/\d+ of .*/batch-0"))
    expect(panel.locator(".event", has_text="is kept for it")).to_contain_text("takes decode/")
    panel = screen.select(batch)
    expect(panel.locator(".claim")).to_contain_text(re.compile(r"Gives way.*decode/\d+ of unit 0 gave way to .*chat"))

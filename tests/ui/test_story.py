"""A gang's story, as a list and along a time axis."""

import json
from collections.abc import Callable

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
    floor.api("PATCH", f"/api/v1/namespaces/{namespace}/pods/{decode['metadata']['name']}/status", failed)
    before = panel.locator(".event").count()
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

"""Everything without a mouse."""

from collections.abc import Callable
from typing import Any

from playwright.sync_api import expect

from builders.files import role
from ui.screen import Screen


def test_one_walk_through_the_page(screen: Screen, create: Callable[..., str]) -> None:
    key = create("llm", role("w", 1, 1))
    expect(screen.stands(key)).to_contain_text("ready")
    screen.press("Tab")
    assert screen.page.evaluate("document.activeElement.className") == "skip"
    screen.press("Enter")
    expect(screen.page.locator("#floor")).to_be_focused()
    seen: list[Any] = []
    for _ in range(60):
        screen.press("Tab")
        seen.append(screen.page.evaluate("document.activeElement.dataset.key ?? document.activeElement.id"))
        if str(seen[-1]).startswith("box/"):
            break
    assert str(seen[-1]).startswith("box/"), seen
    assert screen.page.locator('#tree [tabindex="0"]').count() == 1, "the floor is one stop"
    assert screen.state()["label"].startswith("block-0:")
    screen.press("ArrowRight")
    assert screen.state()["label"].startswith("rack-0-0:")
    screen.press("ArrowDown", "ArrowRight")
    assert screen.state()["label"].startswith("node-0-1-0:")
    screen.press("End")
    assert screen.state()["label"].startswith("node-1-2-5:")
    screen.press("Home", "ArrowLeft", "ArrowLeft", "ArrowLeft")
    assert screen.state()["label"].startswith("block-0:")


def test_a_domain_opens_and_closes(screen: Screen) -> None:
    screen.domain("block-1").focus()
    screen.press("Enter")
    expect(screen.page.locator("#crumbs [aria-current]")).to_have_text("block-1")
    expect(screen.domain("block-0")).to_have_count(0)
    screen.domain("rack-1-2").focus()
    screen.press("Enter")
    expect(screen.page.locator("#crumbs [aria-current]")).to_have_text("rack-1-2")
    expect(screen.page.locator("#tree .node")).to_have_count(6)
    screen.press("Escape", "Escape")
    expect(screen.domain("block-0")).to_be_visible()


def test_a_node_selects_its_gang_and_says_what_it_is(screen: Screen, create: Callable[..., str]) -> None:
    key = create("llm", role("w", 1, 1))
    expect(screen.pods(key)).to_have_count(1)
    expect(screen.stands(key)).to_contain_text("ready")
    node = screen.nodes_of(key)
    node.focus()
    screen.press("Shift")
    expect(screen.page.locator("#tip")).to_contain_text(f"{key} w replica 0 pod 0")
    assert f"{key} w replica 0 pod 0, ready" in screen.state()["label"]
    screen.press("Enter")
    expect(screen.page.locator("#gang-title")).to_contain_text("llm")
    expect(node).to_be_focused()
    screen.press("Escape")
    expect(screen.page.locator("#gang")).to_be_hidden()


def test_shortcuts_are_listed_and_can_be_turned_off(screen: Screen) -> None:
    screen.press("?")
    dialog = screen.page.get_by_role("dialog")
    expect(dialog).to_contain_text("Go to the floor")
    screen.page.get_by_label("Single-key shortcuts").uncheck()
    screen.press("Escape")
    expect(dialog).to_be_hidden()
    screen.press("p")
    expect(screen.page.locator("#plan")).to_be_hidden()
    screen.page.get_by_role("button", name="Help and keyboard shortcuts").press("Enter")
    screen.page.get_by_label("Single-key shortcuts").check()
    screen.press("Escape")
    for key, place in {"p": "#manifest", "g": "#gangs", "f": "#floor", "/": "#search", "w": "#gangs"}.items():
        screen.page.locator("#tab-now").focus() if key != "p" else screen.page.locator("body").focus()
        screen.press("n", key)
        expect(screen.page.locator(place)).to_be_focused()
        screen.press("Escape")


def test_focus_stays_while_the_cluster_changes(screen: Screen, create: Callable[..., str]) -> None:
    screen.node("node-0-0-0").focus()
    key = create("llm", role("w", 30, 1))
    expect(screen.gang(key)).to_contain_text("30/30")
    expect(screen.node("node-0-0-0")).to_be_focused()
    screen.gang(key).focus()
    screen.press("Enter")
    expect(screen.gang(key)).to_be_focused()

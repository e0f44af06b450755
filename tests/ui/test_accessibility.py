"""axe finds nothing, in every state of the page; everything that takes the focus has a role and a name."""

import json
import re
from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from builders.files import inference, role
from ui.conftest import Open
from ui.screen import Screen

#: What axe judges by, in either scheme of colours: elements are the same in both.
_RULES = {
    "light": ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"),
    "dark": ("color-contrast", "link-in-text-block"),
}


def violations(screen: Screen, scheme: str = "light") -> list[str]:
    """What axe complains of, with the first elements of each."""
    found = Axe().run(screen.page, options={"runOnly": list(_RULES[scheme])}).response["violations"]
    return [f"{each['id']}: {[node['html'][:120] for node in each['nodes'][:3]]}" for each in found]


def unnamed(screen: Screen) -> list[str]:
    """What can have the focus and has no name, or no role, for a screen reader."""
    session = screen.page.context.new_cdp_session(screen.page)
    found = []
    for node in session.send("Accessibility.getFullAXTree")["nodes"]:
        properties = {each["name"]: each["value"].get("value") for each in node.get("properties", ())}
        kind, name = node.get("role", {}).get("value"), node.get("name", {}).get("value")
        if properties.get("focusable") and not node.get("ignored") and kind != "RootWebArea" and not name:
            found.append(f"{kind} {node.get('backendDOMNodeId')}")
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_any_state(open_page: Open, create: Callable[..., str], scheme: str) -> None:
    screen = open_page(color_scheme=scheme).live()
    expect(screen.page.locator("#gangs-empty")).to_be_visible()
    assert violations(screen, scheme) == []
    runs, big = create("llm", role("prefill", 2, 1), role("decode", 1, 1)), create("big", role("w", 40, 40))
    expect(screen.stands(runs)).to_contain_text("ready")
    expect(screen.waiting(big)).to_be_visible()
    assert violations(screen, scheme) == []
    panel = screen.select(runs)
    expect(panel.locator('.event[data-kind="ready"]').first).to_be_attached()
    assert violations(screen, scheme) == []
    assert unnamed(screen) == []
    screen.page.get_by_role("button", name="Table").click()
    assert violations(screen, scheme) == []
    screen.page.get_by_role("button", name="Table").click()
    screen.plan(json.dumps(inference("more", role("w", 3, 3))))
    expect(screen.page.locator("#tree .run.planned")).to_have_count(3)
    assert violations(screen, scheme) == []
    screen.plan("kind: [")
    expect(screen.page.locator("#plan-error")).not_to_be_empty()
    assert violations(screen, scheme) == []
    screen.page.get_by_role("tab", name="Now").click()
    screen.press("?")
    expect(screen.page.get_by_role("dialog")).to_be_visible()
    assert violations(screen, scheme) == []
    assert unnamed(screen) == []


def test_landmarks_and_headings_give_the_page_its_shape(screen: Screen) -> None:
    page = screen.page
    for landmark in ("banner", "main", "contentinfo", "search", "navigation"):
        expect(page.get_by_role(landmark).first).to_be_attached()  # type: ignore[arg-type] - a role
    headings = page.locator("h1, h2, h3").evaluate_all(
        "all => all.filter((each) => each.checkVisibility()).map((each) => each.tagName)"
    )
    assert headings[0] == "H1"
    assert "H2" in headings
    expect(page.get_by_role("tree", name="Floor")).to_be_visible()
    levels = page.get_by_role("treeitem").evaluate_all("all => all.map((each) => each.ariaLevel)")
    assert {levels.count(level) for level in ("1", "2", "3")} == {2, 6, 36}
    expect(page.locator("#live")).to_have_attribute("aria-live", "polite")


def test_the_table_says_the_same_as_the_floor(screen: Screen, create: Callable[..., str]) -> None:
    key = create("llm", role("w", 2, 1))
    expect(screen.gang(key)).to_contain_text("2/2")
    node = screen.nodes_of(key).first.get_attribute("aria-label") or ""
    screen.page.get_by_role("button", name="Table").click()
    expect(screen.page.get_by_role("row")).to_have_count(37)
    row = screen.page.get_by_role("row", name=node.partition(":")[0])
    expect(row).to_contain_text(f"{key} w replica")
    expect(screen.page.locator("#tree")).to_be_hidden()


def test_what_changes_is_told_politely_and_once(screen: Screen, create: Callable[..., str]) -> None:
    # What is there when the page is first drawn, a frame after it is live, is no change.
    expect(screen.page.locator("#gangs-empty")).to_be_visible()
    key = create("llm", role("w", 1, 1))
    live = screen.page.locator("#live")
    expect(live).to_contain_text(f"{key} has appeared")
    # It may be ready by the time that it is first told of.
    expect(live).to_contain_text(re.compile(rf"{re.escape(key)} (is|has appeared,) ready"))
    said = live.locator("p").all_inner_texts()
    assert len(said) == len(set(said))

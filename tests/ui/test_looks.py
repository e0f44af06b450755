"""Light and dark, without motion, from a telephone to a wall."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from builders.files import role
from ui.conftest import Open
from ui.screen import Screen

_BRIGHTNESS = """() => { const canvas = document.createElement("canvas").getContext("2d");
canvas.fillStyle = getComputedStyle(document.body).backgroundColor; canvas.fillRect(0, 0, 1, 1);
const [red, green, blue] = canvas.getImageData(0, 0, 1, 1).data; return (red + green + blue) / 3; }"""


def dark(screen: Screen) -> bool:
    return float(screen.page.evaluate(_BRIGHTNESS)) < 128


def test_the_page_follows_the_system_until_somebody_chooses(open_page: Open) -> None:
    assert not dark(open_page(color_scheme="light").live())
    screen = open_page(color_scheme="dark").live()
    assert dark(screen)
    screen.page.get_by_label("Colours").select_option("light")
    assert not dark(screen)
    screen.page.reload()
    assert not dark(screen.live()), "it is kept for the next visit"
    screen.page.get_by_label("Colours").select_option("auto")
    assert dark(screen)


def test_nothing_moves_where_motion_is_not_wanted(open_page: Open, create: Callable[..., str]) -> None:
    key = create("llm", role("w", 2, 1))
    still, moving = open_page().live(), open_page(reduced_motion="no-preference").live()
    name = "element => getComputedStyle(element).animationName"
    expect(still.pods(key)).to_have_count(2)
    expect(moving.pods(key)).to_have_count(2)
    assert still.pods(key).first.evaluate(name) == "none"
    assert moving.pods(key).first.evaluate(name) == "arrive"


@pytest.mark.parametrize("width", [360, 768, 1024, 1920, 3840])
def test_nothing_is_cut_off_at_any_width(open_page: Open, create: Callable[..., str], width: int) -> None:
    runs, big = create("llm", role("prefill", 2, 1), role("decode", 1, 1)), create("big", role("w", 40, 40))
    screen = open_page(viewport={"width": width, "height": 900}).live()
    expect(screen.stands(runs)).to_contain_text("ready")
    expect(screen.waiting(big)).to_be_visible()
    screen.select(runs)
    expect(screen.page.locator(".axis svg")).to_be_visible()
    # It is laid out anew once the panel has taken its part of the room.
    screen.page.wait_for_function("document.documentElement.scrollWidth <= innerWidth")
    screen.page.wait_for_function("(tree => tree.scrollWidth <= tree.clientWidth)(document.getElementById('tree'))")
    labels = screen.page.locator(".label-text").evaluate_all("all => all.map((each) => each.offsetHeight)")
    assert max(labels) < 30, "each stands on one line"
    small = screen.page.locator("button:visible").evaluate_all(
        "all => all.filter((each) => each.getBoundingClientRect().height < 24).map((each) => each.outerHTML)"
    )
    assert small == [], "large enough to be hit"


@pytest.mark.parametrize("size", [(1400, 900), (1024, 768), (390, 844)])
def test_the_story_of_a_gang_that_is_selected_is_on_the_first_screen(
    open_page: Open, create: Callable[..., str], size: tuple[int, int]
) -> None:
    key = create("llm", role("prefill", 2, 1), role("decode", 1, 1))
    screen = open_page(viewport={"width": size[0], "height": size[1]}).live()
    expect(screen.stands(key)).to_contain_text("ready")
    panel = screen.select(key)
    expect(panel.locator("#gang-title")).to_be_in_viewport()
    expect(panel.locator(".story")).to_be_in_viewport()


def test_roles_are_told_apart_without_colour(screen: Screen, create: Callable[..., str]) -> None:
    key = create("llm", role("prefill", 1, 1), role("decode", 1, 1))
    expect(screen.pods(key)).to_have_count(2)
    tags = screen.pods(key).locator(".tag").all_inner_texts()
    assert {tag[0] for tag in tags} == {"P", "D"}
    expect(screen.page.locator("#legend")).to_contain_text("llm prefill")

"""What waits is first in sight, with its reason."""

import re
from collections.abc import Callable

from playwright.sync_api import expect

from builders.files import role
from ui.screen import Screen


def test_what_does_not_fit_says_why_and_what_would_help(screen: Screen, create: Callable[..., str]) -> None:
    expect(screen.page.locator("#waiting")).to_be_hidden()
    key = create("big", role("prefill", 7, 7, size=3, topology={"required": "rack"}), topology={"required": "block"})
    card = screen.waiting(key)
    expect(card).to_contain_text("Infeasible")
    expect(card.locator(".message")).to_contain_text("prefill")
    expect(card.locator("time[data-since]")).not_to_be_empty()
    expect(screen.page).to_have_title(re.compile(r"\(1\) Covey"))
    card.get_by_text("what would help").click()
    expect(card.locator(".remedy")).to_contain_text("covey plan tries changes without making them")
    above = screen.page.evaluate(
        "document.getElementById('waiting').compareDocumentPosition(document.getElementById('gangs'))"
        " & Node.DOCUMENT_POSITION_FOLLOWING"
    )
    assert above, "what waits comes before everything else"
    assert screen.page.locator("#waiting").bounding_box()["y"] < 200  # type: ignore[index] - it is visible
    card.get_by_role("button", name=key).click()
    expect(screen.page.locator("#gang")).to_contain_text("Infeasible")


def test_when_room_is_there_it_no_longer_waits(
    screen: Screen, create: Callable[..., str], delete: Callable[[str], None]
) -> None:
    first = create("first", role("w", 30, 30))
    expect(screen.gang(first)).to_contain_text("30/30")
    second = create("second", role("w", 8, 8))
    expect(screen.waiting(second)).to_contain_text("Infeasible")
    delete(first)
    expect(screen.gang(second)).to_contain_text("8/8")
    expect(screen.page.locator("#waiting")).to_be_hidden()

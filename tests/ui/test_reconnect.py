"""The server goes and comes back."""

import time
from collections.abc import Callable

from playwright.sync_api import expect

from builders.files import role
from screens.serving import Served
from ui.conftest import Open
from ui.screen import Screen


def test_the_page_comes_back_by_itself_when_the_server_answers_again(
    screen: Screen, served: Served, create: Callable[..., str]
) -> None:
    screen.watch.away = True
    connection = screen.page.locator("#connection")
    # Silence is measured from the last word on: from the next one by a clock that can be set forward.
    screen.page.clock.install()
    expect(screen.gang(create("first", role("w", 1, 1)))).to_be_visible()
    served.process.pause()
    try:
        # Nothing is heard, not even that the server lives.
        screen.page.clock.fast_forward(60_000)
        expect(connection).to_have_attribute("data-state", "down")
        expect(connection).to_contain_text("Trying again in")
        expect(screen.domain("block-0")).to_be_visible()  # what was known stays in sight
        key = create("llm", role("w", 1, 1))
    finally:
        served.process.resume()
    screen.live()
    expect(screen.gang(key)).to_be_visible()
    expect(screen.page.get_by_role("button", name="Try now")).to_be_hidden()


def test_a_server_that_is_started_anew_wants_its_new_link(open_page: Open, served: Served) -> None:
    screen = open_page().live()
    screen.watch.away = True
    # Time stands still in the page: it does not try by itself before the button is pressed. A busy browser hears of it
    # seconds later, and refuses a time that has passed.
    screen.page.clock.install()
    screen.page.clock.pause_at(time.time() + 10)
    served.process.stop()
    try:
        expect(screen.page.locator("#connection")).to_contain_text("Trying again in")
        expect(screen.domain("block-0")).to_be_visible()
    finally:
        served.process.start()
    screen.page.get_by_role("button", name="Try now").click()
    screen.page.clock.resume()
    expect(screen.page.locator("#sign-in-link")).to_contain_text("Open the link")
    screen.page.goto(served.link())
    screen.live()
    expect(screen.page.locator("#sign-in")).to_be_hidden()

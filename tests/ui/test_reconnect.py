"""The server goes and comes back."""

from collections.abc import Callable

from playwright.sync_api import expect

from cli_inputs import role
from screens.serving import Served
from ui.conftest import Open


def test_the_page_says_that_it_is_cut_off_and_comes_back(
    open_page: Open, served: Served, create: Callable[..., str]
) -> None:
    screen = open_page().live()
    screen.watch.away = True
    connection = screen.page.locator("#connection")
    served.process.stop()
    expect(connection).to_have_attribute("data-state", "down")
    expect(connection).to_contain_text("Trying again in")
    expect(screen.page.locator("#tree [role=treeitem]").first).to_be_visible(), "what was known stays in sight"
    key = create("llm", role("w", 1, 1))
    served.process.start()
    screen.page.get_by_role("button", name="Try now").click()
    # A new process gives out new sessions, and prints a new link.
    if screen.page.locator("#sign-in").is_visible() or connection.get_attribute("data-state") != "live":
        screen.page.goto(served.link())
    screen.live()
    expect(screen.gang(key)).to_be_visible()

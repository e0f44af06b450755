"""The page that the operator serves wants a token for the API server."""

from collections.abc import Callable

from playwright.sync_api import expect

from builders.files import role
from localcluster import Cluster
from ui.conftest import Open


def test_with_a_token_of_ones_own(open_page: Open, floor: Cluster, in_cluster: str, create: Callable[..., str]) -> None:
    key = create("llm", role("w", 1, 1))
    screen = open_page(url=in_cluster)
    page, field = screen.page, screen.page.get_by_label("Token")
    expect(field).to_be_focused()
    expect(page.locator("#main")).to_be_hidden()
    field.fill("guessed")
    screen.press("Enter")
    expect(page.get_by_role("alert").filter(visible=True)).not_to_be_empty()
    expect(field).to_have_value("")
    field.fill(floor.token)
    page.get_by_role("button", name="Sign in").click()
    screen.live()
    expect(screen.gang(key)).to_be_visible()
    page.reload()
    screen.live()
    page.get_by_role("button", name="Sign out").click()
    expect(field).to_be_visible()
    expect(page.locator("#main")).to_be_hidden()
    page.reload()
    expect(field).to_be_visible()


def test_a_token_is_not_kept_beyond_the_tab(open_page: Open, floor: Cluster, in_cluster: str) -> None:
    screen = open_page(url=in_cluster)
    screen.page.get_by_label("Token").fill(floor.token)
    screen.press("Enter")
    screen.live()
    kept = screen.page.evaluate("[JSON.stringify(localStorage), document.cookie, location.href].join()")
    assert floor.token not in kept
    other = screen.page.context.new_page()
    other.goto(in_cluster)
    expect(other.get_by_label("Token")).to_be_visible()

"""Many nodes: what is drawn is counted, since time depends on the machine."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from localcluster import Cluster, Nodes
from screens import chromium
from screens.serving import Served
from ui.screen import Screen

LARGE = Nodes(blocks=18, racks=16, nodes=18)
#: Seven for a rack with one look in it, however many nodes it has; a few for each block, and what stands around the floor.
MOST = 7 * 18 * 16 + 6 * 18 + 300


@pytest.fixture(scope="module")
def large(browser: Browser) -> Iterator[Screen]:
    """A page of a cluster with 5,184 nodes, in 288 racks."""
    with Cluster(kwok=False) as cluster:
        cluster.add_nodes(LARGE)
        screen = Screen(*chromium.visit(browser, Served(cluster, "covey-ui", cluster.kubeconfig).link()))
        yield screen.live()
        screen.page.context.close()


def test_thousands_of_nodes_are_a_few_elements_a_rack(large: Screen) -> None:
    expect(large.page.locator("#totals")).to_contain_text("5,184")
    assert large.page.get_by_role("treeitem").count() == 18 + 288, "racks, not nodes"
    assert large.page.evaluate("document.querySelectorAll('*').length") < MOST
    assert large.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


def test_a_rack_is_drawn_whole_when_it_is_opened(large: Screen) -> None:
    large.domain("block-7").locator(".head").first.click()
    expect(large.page.get_by_role("treeitem")).to_have_count(16)
    large.domain("rack-7-3").click()
    expect(large.page.locator("#tree .node")).to_have_count(18)
    expect(large.node("node-7-3-17").locator(".cell")).to_have_count(8)
    large.press("Escape", "Escape")
    expect(large.page.get_by_role("treeitem")).to_have_count(18 + 288)


def test_the_table_has_pages(large: Screen) -> None:
    large.page.get_by_role("button", name="Table").click()
    expect(large.page.get_by_role("row")).to_have_count(201)
    large.page.get_by_role("button", name="Show 200 more").click()
    expect(large.page.get_by_role("row")).to_have_count(401)
    large.page.get_by_role("button", name="Table").click()


def test_hovering_tells_of_a_node_that_has_no_element(large: Screen) -> None:
    picture = large.domain("rack-0-0").locator(".bits")
    expect(picture).to_be_visible()
    frame = picture.bounding_box()
    assert frame is not None
    picture.hover(position={"x": frame["width"] * 17.5 / 18, "y": frame["height"] / 2})
    expect(large.page.locator("#tip")).to_contain_text("node-0-0-17")
    assert large.watch.faults == []

"""What happens in the cluster happens on the page, without a reload."""

import re
from collections.abc import Callable

from playwright.sync_api import expect

from builders.files import role
from localcluster import Cluster
from ui.screen import Screen

GANG = (role("prefill", 2, 1, size=2, topology={"required": "rack"}), role("decode", 1, 1, size=2))


def test_a_gang_appears_is_bound_and_goes(
    screen: Screen, create: Callable[..., str], delete: Callable[[str], None]
) -> None:
    expect(screen.page.locator("#gangs-empty")).to_contain_text("kubectl apply")
    key = create("llm", *GANG, topology={"required": "block"})
    expect(screen.gang(key)).to_be_visible()
    expect(screen.pods(key)).to_have_count(6)
    expect(screen.stands(key)).to_contain_text("ready")
    expect(screen.gang(key)).to_contain_text("2/2")
    # It may be ready by the time that it is first told of.
    expect(screen.page.locator("#live")).to_contain_text(re.compile(rf"{re.escape(key)} (is|has appeared,) ready"))
    delete(key)
    expect(screen.gang(key)).to_have_count(0)
    expect(screen.pods(key)).to_have_count(0)
    expect(screen.page.locator("#live")).to_contain_text(f"{key} is gone")


def test_a_replica_that_leaves_a_node_is_drawn_elsewhere(
    screen: Screen, floor: Cluster, create: Callable[..., str]
) -> None:
    key = create("llm", role("decode", 1, 1))
    expect(screen.stands(key)).to_contain_text("ready")
    (pod,) = floor.api("GET", f"/api/v1/namespaces/{key.partition('/')[0]}/pods")["items"]
    node = pod["spec"]["nodeName"]
    expect(screen.node(node).locator(".run")).to_have_count(1)
    floor.kubectl("cordon", node)
    try:
        expect(screen.node(node).locator(".why")).to_have_text("cordoned")
        expect(screen.node(node).locator(".run")).to_have_count(0)
        expect(screen.pods(key)).to_have_count(1)
    finally:
        floor.kubectl("uncordon", node)
    expect(screen.node(node).locator(".why")).to_have_count(0)


def test_selecting_a_gang_fades_the_others(screen: Screen, create: Callable[..., str]) -> None:
    one, two = create("one", role("w", 2, 1)), create("two", role("w", 1, 1))
    for key in (one, two):
        expect(screen.stands(key)).to_contain_text("ready")
    screen.select(one)
    expect(screen.page.locator("#tree .run.chosen")).to_have_count(2)
    expect(screen.page.locator("#tree .run.faded")).to_have_count(1)
    screen.press("Escape")
    expect(screen.page.locator("#tree .run.faded")).to_have_count(0)
    screen.pods(two).click()
    expect(screen.page.locator("#gang-title")).to_contain_text("two")


def test_filters_leave_what_was_asked_for(screen: Screen, create: Callable[..., str], team: str) -> None:
    one, two = create("alpha", role("w", 1, 1)), create("beta", role("w", 1, 1))
    for key in (one, two):
        expect(screen.stands(key)).to_contain_text("ready")
    screen.page.get_by_label("Name", exact=True).fill("alp")
    expect(screen.gang(two)).to_have_count(0)
    expect(screen.pods(one)).to_have_count(1)
    expect(screen.pods(two)).to_have_count(0)
    expect(screen.page.locator("#tree .cell.other")).to_have_count(8)
    screen.page.get_by_label("Name", exact=True).fill("")
    screen.page.get_by_label("Namespace").fill(team)
    screen.press("Enter")
    expect(screen.gang(two)).to_be_visible()
    screen.page.get_by_label("Namespace").fill("nobodys")
    screen.press("Enter")
    expect(screen.page.locator("#gangs-empty")).to_contain_text("No gang")


def test_gangs_of_other_controllers_are_counted(screen: Screen, floor: Cluster, team: str) -> None:
    words = screen.page.locator("#gangs-foreign")
    expect(words).to_be_hidden()
    group = {
        "apiVersion": "scheduling.covey.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "solo"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    }
    path = f"/apis/scheduling.covey.dev/v1alpha1/namespaces/{team}/podgroups"
    floor.api("POST", path, group)
    expect(words).to_contain_text("1 gang of another controller is not listed")
    floor.api("DELETE", f"{path}/solo")
    expect(words).to_be_hidden()

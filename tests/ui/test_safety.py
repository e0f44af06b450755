"""Other people's text is text, and nothing leaves the origin. (Every test of these asserts the latter, and a quiet console.)"""

from collections.abc import Callable

from playwright.sync_api import expect

from builders.files import role
from localcluster import Cluster
from screens.serving import Served
from ui.conftest import Open
from ui.screen import Screen

HTML = '<img src="https://example.com/x.png" onerror="document.title=1"><script>document.title=2</script><b>bold</b>'


def test_markup_in_messages_is_shown_as_it_is(screen: Screen, floor: Cluster, create: Callable[..., str]) -> None:
    key = create("llm", role("w", 40, 40))
    expect(screen.waiting(key)).to_be_visible()
    namespace, _, name = key.partition("/")
    event = {
        "metadata": {"name": f"{name}.html", "namespace": namespace},
        "involvedObject": {
            "apiVersion": "inference.covey.dev/v1alpha1",
            "kind": "DisaggregatedInference",
            "name": name,
            "namespace": namespace,
            "uid": floor.api(
                "GET", f"/apis/inference.covey.dev/v1alpha1/namespaces/{namespace}/disaggregatedinferences/{name}"
            )["metadata"]["uid"],
        },
        "reason": "Stranger",
        "message": HTML,
        "type": "Warning",
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
        "source": {"component": "<i>stranger</i>"},
    }
    floor.api("POST", f"/api/v1/namespaces/{namespace}/events", event)
    panel = screen.select(key)
    expect(panel.locator(".events")).to_contain_text(HTML)
    assert screen.page.locator("#gang img, #gang b, #gang script").count() == 0
    answer = screen.plan(f"kind: {HTML}")
    expect(answer.get_by_role("alert")).not_to_be_empty()
    assert screen.page.locator("#plan img, #plan b").count() == 0


def test_the_policy_is_strict_and_the_page_keeps_to_it(open_page: Open) -> None:
    screen = open_page().live()
    answer = screen.page.request.get(screen.watch.origin + "/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    with screen.page.expect_console_message(lambda said: "TrustedScript" in said.text):
        script = """() => { const made = document.createElement("script");
        try { made.textContent = "window.ran = true"; document.head.append(made); } catch { return; } }"""
        screen.page.evaluate(script)
    assert screen.page.evaluate("window.ran") is None
    screen.watch.faults.clear()  # the browser has told of this very script


def test_the_code_of_the_link_does_not_stay_in_the_address(open_page: Open) -> None:
    screen = open_page().live()
    assert "code" not in screen.page.url
    screen.page.reload()
    screen.live()
    assert all("code=" not in request for request in screen.watch.requests)


def test_a_link_that_nobody_answers_does_not_leave_the_page_silent(open_page: Open, served: Served) -> None:
    screen = open_page(url=f"{served.origin}/")
    expect(screen.page.locator("#sign-in-link")).to_be_visible()
    screen.page.route("**/api/session", lambda route: route.abort())
    with screen.page.expect_event("load"):
        screen.page.goto(served.link())
    expect(screen.page.locator("#sign-in-link")).to_be_visible()


def test_a_link_opens_the_page_once(open_page: Open, served: Served) -> None:
    link = served.link()
    open_page(url=link).live()
    second = open_page(url=link)
    expect(second.page.get_by_role("heading", name="Sign in")).to_be_visible()
    expect(second.page.locator("#main")).to_be_hidden()

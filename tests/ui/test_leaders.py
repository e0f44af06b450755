"""The page says who leads and since when, and where nobody does whose lease is not renewed."""

import time
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import expect

from builders.files import role
from covey.api import core
from localcluster import Cluster
from screens.serving import Served
from ui.conftest import Open

_LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


@pytest.fixture
def leases(floor: Cluster) -> Iterator[None]:
    """A scheduler process that leads, and an operator that has not renewed its lease."""
    for name, ago in (("covey-operator", 300), ("covey-planner", 0)):
        renewed = core.rfc3339(time.time() - ago).replace("Z", ".000000Z")
        times = {"acquireTime": renewed, "renewTime": renewed, "leaseDurationSeconds": 200}
        floor.api("POST", _LEASES, {"metadata": {"name": name}, "spec": {"holderIdentity": f"{name}-1", **times}})
    yield
    for name in ("covey-operator", "covey-planner"):
        floor.delete(f"{_LEASES}/{name}")


@pytest.mark.usefixtures("leases")
def test_page_when_nobody_renews_the_lease_of_the_operator_says_so_above_and_who_leads_below(
    open_page: Open, floor: Cluster, create: Callable[..., str]
) -> None:
    create("llm", role("w", 1, 1))
    try:
        screen = open_page(Served(floor, "covey-ui-leaders", floor.kubeconfig)).live()
        notice = screen.page.locator("#notices")
        expect(notice).to_contain_text(
            "No operator leads: lease default/covey-operator of covey-operator-1 was renewed 3"
        )
        notice.locator("summary").first.click()
        expect(notice).to_contain_text("kubectl get deployment,pods -n default")
        expect(screen.page.locator("#versions")).to_contain_text("scheduler process covey-planner-1 leads since")
    finally:
        floor.forget("covey-ui-leaders")

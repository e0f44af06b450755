"""A viewer sees what the viewer's own credentials may read, and is told what is left out."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import expect

from builders.files import inference, role
from cluster.namespaces import make_namespace
from localcluster import Cluster
from screens.serving import Served
from ui.conftest import Open, leave_namespace

_RULES = [
    {"apiGroups": [""], "resources": ["pods", "events"], "verbs": ["get", "list", "watch"]},
    {
        "apiGroups": ["inference.covey.dev", "scheduling.covey.dev"],
        "resources": ["*"],
        "verbs": ["get", "list", "watch"],
    },
]


@pytest.fixture
def limited(floor: Cluster, team: str) -> Iterator[Served]:
    """``covey ui -n TEAM`` of an account that may read one namespace."""
    kubeconfig = floor.service_account_kubeconfig(team, "viewer")
    meta: dict[str, Any] = {"name": "viewer", "namespace": team}
    group = "/apis/rbac.authorization.k8s.io/v1"
    floor.api("POST", f"{group}/namespaces/{team}/roles", {"metadata": meta, "rules": _RULES})
    binding = {
        "metadata": meta,
        "subjects": [{"kind": "ServiceAccount", **meta}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "viewer"},
    }
    floor.api("POST", f"{group}/namespaces/{team}/rolebindings", binding)
    served = Served(floor, "covey-ui-limited", kubeconfig, ["-n", team])
    yield served
    floor.forget("covey-ui-limited")


@pytest.fixture
def others(floor: Cluster) -> Iterator[str]:
    """Somebody else's namespace."""
    name = make_namespace(floor, "others")
    yield name
    leave_namespace(floor, name)


def test_one_namespace_only(
    open_page: Open, limited: Served, floor: Cluster, others: str, create: Callable[..., str]
) -> None:
    mine = create("mine", role("w", 1, 1))
    path = f"/apis/inference.covey.dev/v1alpha1/namespaces/{others}/disaggregatedinferences"
    floor.api("POST", path, inference("theirs", role("w", 1, 1)))
    screen = open_page(limited).live()
    expect(screen.stands(mine)).to_contain_text("ready")
    expect(screen.gang(f"{others}/theirs")).to_have_count(0)
    notice = screen.page.locator("#notices")
    expect(notice).to_contain_text("your credentials may not read it all")
    notice.locator("summary").click()
    expect(notice).to_contain_text("nodes")
    expect(screen.page.locator("#floor-empty")).to_contain_text("may not list nodes")
    panel = screen.select(mine)
    expect(panel.locator('.event[data-kind="created"]').first).to_be_attached()
    assert "theirs" not in screen.page.content()

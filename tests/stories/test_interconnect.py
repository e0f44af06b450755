"""ComputeDomains: there before their pods, gone after the last of them; exclusive units, and replicas through a rollout.

The controller of NVIDIA's DRA driver is the story's own: it makes a template for each domain when the story says so.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from kubernetes.client import ApiException

from builders.devices import class_body, device, slice_body
from builders.manifests import Object, role, template
from cluster.compute_domains import CHANNEL, DEFINITION, GROUP, Controller
from cluster.workbench import OWNED, label, name_of, uids
from device_driver import Driver
from localcluster.programs import ROOT
from stage import Ground, Stage
from stage.record import states

RIGHTS: Final = ROOT / "manifests" / "components" / "compute-domains" / "rights.yaml"
DRIVER: Final = "compute-domain.nvidia.com"
CLIQUE: Final = "nvidia.com/gpu.clique"
CLAIM: Final = "{}-interconnect"


@pytest.fixture(scope="module", autouse=True)
def kind(ground: Ground) -> Any:
    """The kind of the domains, and the operator's rights on them."""
    cluster = ground.cluster
    cluster.install_rbac(ROOT / "manifests" / "base" / "rbac", RIGHTS)
    cluster.apply([DEFINITION])
    yield
    cluster.kubectl("delete", "crd", f"computedomains.{GROUP}")
    cluster.kubectl("delete", "-f", str(RIGHTS), check=False)


@pytest.fixture
def domains(stage: Stage) -> Controller:
    """The domains of the story, and their controller."""
    stage.restart(operator={"compute_domains": True})
    made = Controller(stage.cluster, stage.namespace)
    # Those of a story before, in the same namespace.
    for path in (made.domains, made.templates):
        stage.cluster.delete(path)
    return made


@pytest.fixture
def cliques(stage: Stage) -> None:
    """Two cliques of two nodes, each with a channel."""
    driver = Driver(stage.cluster, stage.namespace)
    stage.after(lambda: [stage.cluster.api("DELETE", path) for path in driver.made])
    driver.make("deviceclasses", class_body(CHANNEL, f'device.driver == "{DRIVER}"', resource=None))
    for name in stage.nodes(preset="clique", racks=2, nodes=2):
        driver.make("resourceslices", slice_body(name, device("channel-0", "channel"), node=name, driver=DRIVER))


def roles(decode: int = 2) -> list[Object]:
    return [role("prefill"), role("decode", replicas=decode, size=2, minReplicas=1, interconnect=True)]


def joined(count: int = 1, **fields: Any) -> Object:
    return role("decode", replicas=count, minReplicas=count, interconnect=True, **fields)


def names(stage: Stage, domains: Controller) -> list[str]:
    """The domains that there are at rest, each with its template."""
    stage.settle()
    domains.make_templates()
    stage.settle()
    return sorted(name_of(domain) for domain in domains.all() if "deletionTimestamp" not in domain["metadata"])


def claims(pod: Object) -> list[str]:
    return [each["resourceClaimTemplateName"] for each in pod["spec"].get("resourceClaims", ())]


def test_domain_of_a_unit_is_there_before_its_pods_and_gone_after_the_last_of_them(
    stage: Stage, domains: Controller
) -> None:
    stage.create(*roles(), interconnect={"type": "ComputeDomain"}, replicas=2)
    assert names(stage, domains) == ["llm-0", "llm-1"]
    made = {name_of(domain): int(domain["metadata"]["resourceVersion"]) for domain in domains.all()}
    assert len(stage.pods()) == 10
    for event in stage.history("Pod"):
        pod = event.object
        unit, joins = label(pod, "unit"), label(pod, "role") == "decode"
        assert claims(pod) == ([CLAIM.format(f"llm-{unit}")] if joins else [])
        used = pod["spec"]["containers"][0].get("resources", {}).get("claims", [])
        assert used == ([{"name": "covey-interconnect"}] if joins else [])
        assert event.version > made[f"llm-{unit}"] or not joins
    kept = next(pod for pod in stage.pods() if pod["spec"]["hostname"] == "1-decode-0-0")
    stage.patch("Pod", name_of(kept), {"metadata": {"finalizers": ["covey.test/keep"]}})
    stage.change(replicas=1)
    assert names(stage, domains) == ["llm-0", "llm-1"]
    assert len(stage.pods()) == 5
    stage.patch("Pod", name_of(kept), {"metadata": {"finalizers": None}})
    assert names(stage, domains) == ["llm-0"]


def test_domains_of_replicas_follow_them_and_a_killed_operator_leaves_none_twice(
    stage: Stage, domains: Controller
) -> None:
    death = stage.kill("operator", at=10)
    stage.create(*roles(), interconnect={"scope": "Replica"})
    assert names(stage, domains) == ["llm-0-decode-0", "llm-0-decode-1"]
    assert death.at is not None
    assert len(stage.pods()) == 5
    stage.change(roles=roles(decode=1))
    assert len(names(stage, domains)) == 1
    assert len(stage.pods()) == 3


def test_domain_when_it_is_denied_keeps_only_its_own_pods(stage: Stage, domains: Controller) -> None:
    stage.quota("none", **{f"count/computedomains.{GROUP}": 0})
    body = {"apiVersion": f"{GROUP}/v1beta1", "kind": "ComputeDomain", "metadata": {"name": "probe"}}
    spec = {"spec": {"numNodes": 0, "channel": {}}}

    def is_denied() -> bool:
        try:
            stage.cluster.api("POST", f"{domains.domains}?dryRun=All", body | spec)
        except ApiException as error:
            return error.status == 403
        return False

    stage.await_event(is_denied, "the quota is in force")
    stage.create(*roles(), interconnect={"scope": "Replica"})
    stage.create(role("decode"), name="other")
    assert names(stage, domains) == []
    assert len(stage.pods(inference="other")) == 1
    assert "computedomains" in str(stage.status())
    assert not [pod for pod in stage.pods(inference="llm") if claims(pod)]
    stage.delete("ResourceQuota", "none")
    stage.advance(60)
    assert len(names(stage, domains)) == 2
    assert len(stage.pods(inference="llm")) == 5


def test_interconnect_when_it_is_switched_off_or_its_kind_is_missing_is_refused_by_name(
    stage: Stage, domains: Controller
) -> None:
    stage.cluster.kubectl("delete", "crd", f"computedomains.{GROUP}")
    stage.restart(operator={"compute_domains": True})
    stage.create(*roles(), interconnect={})
    assert "install NVIDIA's DRA driver" in stage.refusal(reason="Unsupported")
    stage.restart()
    assert "computeDomains" in stage.refusal(reason="Unsupported")
    assert not [item for kind in OWNED for item in stage.owned(kind)]
    stage.cluster.apply([DEFINITION])
    stage.restart(operator={"compute_domains": True})
    assert names(stage, domains) == ["llm-0"]
    assert len(stage.pods()) == 5


def clique_of(stage: Stage, name: str) -> str:
    """The clique of a resource with one pod."""
    [(clique,)] = stage.domains(stage.bound(inference=name), CLIQUE)
    return clique


@pytest.mark.usefixtures("cliques")
def test_units_when_three_are_exclusive_have_a_clique_each_and_the_third_waits_for_one(
    stage: Stage, domains: Controller
) -> None:
    """Each clique has a node, a channel and GPUs left for it, so nothing but the cliques keeps it off."""
    everybody = ("first", "second", "third")
    for name in everybody:
        stage.create(joined(), name=name, interconnect={"exclusive": True})
        names(stage, domains)
    stage.await_event(lambda: len(stage.bound()) == 2, "two units are bound")
    stage.settle()
    [late] = (name for name in everybody if not stage.bound(inference=name))
    assert "exclusive interconnect" in stage.refusal(late)
    first, second = (name for name in everybody if name != late)
    left = clique_of(stage, first)
    assert left != clique_of(stage, second)
    # A process that comes later knows the same, from the pods; and who joins nothing goes anywhere.
    stage.kill_now("scheduler")
    stage.create(role("decode"), name="plain")
    stage.create(joined(), name="shared", interconnect={})
    names(stage, domains)
    stage.ready(1, inference="plain")
    assert "exclusive" in stage.refusal("shared")
    stage.refusal(late)
    stage.delete("DisaggregatedInference", "shared")
    stage.delete("DisaggregatedInference", first)
    stage.await_event(lambda: bool(stage.bound(inference=late)), "the third has the clique that was left")
    assert clique_of(stage, late) == left


@pytest.mark.usefixtures("cliques")
def test_replicas_when_they_roll_have_domains_of_their_own_all_the_time(stage: Stage, domains: Controller) -> None:
    stage.create(joined(2), interconnect={"scope": "Replica"})
    names(stage, domains)
    stage.await_event(lambda: len(stage.bound()) == 2, "both replicas are bound")
    before = uids(stage.ready(2))
    changed = template()
    changed["spec"]["containers"][0]["env"] = [{"name": "NEXT", "value": "1"}]
    stage.change(roles=[joined(2, template=changed)])
    while uids(stage.pods()) & before:
        there = set(names(stage, domains))
        stage.await_event(lambda: all(map(bool, stage.bound())), "what has its domain is bound")
        for _, pods in states(stage.history("Pod")[-1:]):
            for pod in pods.values():
                [claim] = claims(pod)
                # It may have been made since, with its domain.
                assert claim.removesuffix("-interconnect") in there | set(map(name_of, domains.all()))
        stage.await_event(lambda: len(stage.bound()) >= 2, "who replaces is bound")
    stage.settle()
    used = {claim for pod in stage.pods() for claim in claims(pod)}
    assert {CLAIM.format(name) for name in names(stage, domains)} == used
    assert len(used) == 2

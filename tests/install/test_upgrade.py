"""An installation is upgraded, rolled back and upgraded again while everything that Covey does is under way.

It begins with an earlier release (``releases``), whose own chart and own code run. A part of the story (``PARTS``) is a generator: what
is so before, ``yield`` while the releases change, and how it ends under this one. Until it goes on nothing of it may change: no pod is
made anew or takes another place, none that is Ready ceases to be, no revision is recorded anew, and what was asked for stays asked.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from builders.manifests import Object
from cluster.autoscaler import PROVISIONING_REQUEST, Autoscaler, NodeGroup
from cluster.job_gangs import Jobs, job
from cluster.leader_worker_sets import Sets
from cluster.serving import Serving, fewest_serving, serves, workers
from cluster.workbench import is_gated, is_ready, label, name_of, uid_of, uids
from covey import __version__
from install.chart import CHART, NAMESPACE, Helm
from localcluster import Cluster, Nodes, eventually
from localcluster.programs import ROOT
from scheduler_trees import node_of

RELEASES: Final = Path(__file__).parent / "releases"
#: The tags of the images: of the release that is upgraded, and of this one.
OLD: Final = "b857ebce"
OLD_CHART: Final = RELEASES / f"covey-0.1.0-{OLD}.tgz"
NEW: Final = __version__
VALUES: Final[Object] = {
    # What has ended is asked for again after the story.
    "capacity": {"provider": "ProvisioningRequest", "afterSeconds": 1, "waitSeconds": 7200},
    "gangs": {"jobs": True, "leaderWorkerSets": True},
}
#: Of every resource, to be changed and changed back: so it is seen that the operator has seen to it.
DEADLINE: Final = 1800
#: Longer than the story: what drains goes when it says that nothing is under way.
DRAIN_SECONDS: Final = 3600
PODS: Final = "/api/v1/pods"
Part = Callable[["Site"], Iterator[None]]


@dataclass(frozen=True)
class Site(Serving):
    """A namespace with nodes that only its own pods ask for."""

    def add_nodes(self, count: int, prefix: str = "") -> list[str]:
        """Add nodes of eight devices, in one rack."""
        labels = {"site": self.namespace}
        return self.cluster.add_nodes(Nodes(nodes=count, prefix=f"{self.namespace}-{prefix}", labels=labels))

    def create(self, *roles: Object, name: str = "llm", **spec: Any) -> Object:
        return super().create(*roles, name=name, rollout={"progressDeadlineSeconds": DEADLINE}, **spec)

    def role(self, name: str, *, image: str = "1", **fields: Any) -> Object:
        """A role whose pods take a node each, and whose replicas drain until ``finish_drains``."""
        gate = [{"conditionType": "covey.dev/serving"}]
        made = workers(name, spec={"nodeSelector": {"site": self.namespace}, "readinessGates": gate}, **fields)
        made["template"]["spec"]["containers"][0]["image"] = f"registry.test/engine:{image}"
        return {"drainSeconds": DRAIN_SECONDS, **made}

    def await_serving(self, count: int, **labels: Any) -> list[Object]:
        """Wait until exactly so many live pods exist, and all of them serve."""

        def serving() -> list[Object]:
            pods = self.pods(**labels)
            assert len(pods) == count, f"{len(pods)} pods of {count}; {self.states()}"
            assert all(map(serves, pods)), f"not all serve; {self.states()}"
            return pods

        return eventually(serving, 180, f"{count} pods serve")

    def await_draining(self, count: int) -> list[Object]:
        """Wait until exactly so many pods drain: no router sends them anything."""

        def draining() -> list[Object]:
            pods = [pod for pod in self.pods() if is_draining(pod)]
            assert len(pods) == count, f"{len(pods)} pods drain; {self.states()}"
            return pods

        return eventually(draining, 180, f"{count} pods drain")

    def finish_drains(self) -> None:
        """Nothing is under way in what drains."""
        for pod in filter(is_draining, self.pods()):
            patch = {"metadata": {"annotations": {"covey.dev/in-flight": "0"}}}
            self.cluster.api("PATCH", self.path("Pod", name_of(pod)), patch)

    def revisions(self) -> set[str]:
        """The revisions of its pods."""
        return {label(pod, "revision") for pod in self.pods()}


def is_draining(pod: Object) -> bool:
    return "covey.dev/draining-since" in pod["metadata"].get("annotations", {})


def at_rest(site: Site) -> Iterator[None]:
    """It can be scaled, and what is lost is replaced, in the revision that runs and the topology that it was placed with."""
    site.add_nodes(7)
    roles = [site.role("prefill", replicas=2, size=2), site.role("decode", replicas=2)]
    site.create(*roles, topology={"required": "rack"})
    before = site.await_serving(6)
    revisions = site.revisions()
    yield
    eventually(lambda: site.get("CompositePodGroup", "llm-0")["status"].get("topology") == "kueue", 60, "it is told")
    site.change({"roles": [roles[0], site.role("decode", replicas=3)]})
    site.await_serving(7)
    lost = site.pods(role="decode", replica=0)
    site.delete("Pod", name_of(lost[0]))
    eventually(lambda: not uids(lost) & uids(site.pods()), describe="the pod is gone")
    after = site.await_serving(7)
    assert uids(before) - uids(after) == uids(lost)
    assert site.revisions() == revisions


def rollout_half_way(site: Site) -> Iterator[None]:
    """One replica is new, one drains, one waits for its node; it ends, and at no moment fewer serve than were asked for."""
    site.add_nodes(4)
    site.create(site.role("decode", replicas=3, minReplicas=3))
    site.await_serving(3)
    site.change({"roles": [site.role("decode", replicas=3, minReplicas=3, image="2")]})
    site.await_draining(1)
    before = site.await_pods(5)
    yield
    with site.cluster.record(site.path("Pod")) as recording:

        def is_complete() -> bool:
            site.finish_drains()
            found = site.condition("Progressing")
            assert (found["status"], found["reason"]) == ("True", "Complete"), found
            return True

        eventually(is_complete, 180, "the rollout ends")
        site.await_serving(3)
        history = [("DELETED" if is_draining(pod) else kind, pod) for kind, pod in recording.events]
    assert {pod["spec"]["containers"][0]["image"] for pod in site.pods()} == {"registry.test/engine:2"}
    assert fewest_serving([pod for pod in before if not is_draining(pod)], history, "decode", 1) == 3


def sidecar_that_restarted(site: Site) -> Iterator[None]:
    """A restart of an engine in a sidecar that the earlier release did not count is no failure; the next one is."""
    site.add_nodes(2)
    role = site.role("decode", size=2)
    (engine,) = role["template"]["spec"]["containers"]
    agent = {"name": "agent", "image": "registry.test/agent:1", "resources": {"limits": {"cpu": "100m"}}}
    role["template"]["spec"] |= {"initContainers": [engine | {"restartPolicy": "Always"}], "containers": [agent]}
    site.create(role)
    before = site.await_serving(2)

    def restart(pod: Object, count: int) -> None:
        image = engine["image"]
        status = {"name": "engine", "image": image, "imageID": image, "ready": True, "restartCount": count}
        running = {"state": {"running": {"startedAt": pod["metadata"]["creationTimestamp"]}}}
        body = {"status": {"initContainerStatuses": [status | running]}}
        site.cluster.api("PATCH", f"{site.path('Pod', name_of(pod))}/status", body)

    restart(before[0], 3)
    yield
    restart(before[0], 4)
    eventually(lambda: not uids(before) & uids(site.pods()), 120, "the replica is made anew")
    site.await_serving(2)


def claim_in_flight(site: Site) -> Iterator[None]:
    """Somebody drains for a gang of higher priority, which gets the room when it has gone; this release tells of it."""
    classes = {"background": 1, "online": 1000}
    for name, value in classes.items():
        site.cluster.api(
            "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value}
        )
    at_once = {"delaySeconds": 0, "minRunSeconds": 0}
    site.add_nodes(3)
    site.create(
        site.role("decode", replicas=3, minReplicas=1), name="batch", priorityClassName="background", preemption=at_once
    )
    site.await_serving(3)
    site.create(site.role("decode", replicas=2), name="chat", priorityClassName="online", preemption=at_once)
    victims = site.await_draining(1)
    kept = uids(site.pods(inference="batch")) - uids(victims)
    yield
    site.finish_drains()
    eventually(lambda: len([pod for pod in site.pods(inference="chat") if serves(pod)]) == 1, 120, "it has the room")
    path = f"/apis/scheduling.covey.dev/v1alpha1/namespaces/{site.namespace}/preemptions"

    def outcomes() -> list[str]:
        return [item.get("status", {}).get("outcome", "") for item in site.cluster.api("GET", path)["items"]]

    eventually(lambda: outcomes() == ["Placed"], 120, "the claim of the earlier release has its Preemption")
    assert kept <= uids(site.pods(inference="batch"))


def waiting_job(site: Site) -> Iterator[None]:
    """A labelled Job whose pods have no room; they start together when there is some."""
    jobs = Jobs(site.cluster, site.namespace)
    jobs.post(job("train", 2, pod={"nodeSelector": {"site": site.namespace}}))
    before = jobs.await_job_pods("train", 2)
    jobs.await_refusal("train")
    yield
    assert uids(jobs.pods_of("train")) == uids(before), "a Job whose pods are there goes on as before"
    site.add_nodes(1)
    jobs.await_complete("train")


def suspended_job(site: Site) -> Iterator[None]:
    """A labelled Job that its user has suspended stays so, and waits for its turn once it is resumed."""
    jobs = Jobs(site.cluster, site.namespace)
    jobs.post(job("mine", 2, pod={"nodeSelector": {"site": site.namespace}}, suspend=True))
    yield
    assert jobs.read("mine")["spec"]["suspend"]
    jobs.patch("mine", {"suspend": False})
    jobs.await_refusal("mine")
    assert not jobs.pods_of("mine")
    site.add_nodes(1)
    jobs.await_complete("mine")


def leader_worker_set(site: Site) -> Iterator[None]:
    """Of two labelled groups one runs, and the other has no room; it starts whole when there is some."""
    site.add_nodes(1)
    sets = Sets(site.cluster, site.namespace)
    # Nodes have 128 processors.
    fields: Object = {"cpu": "60", "pod": {"nodeSelector": {"site": site.namespace}}}
    sets.leaders("llm", 2, replicas=2, **fields)
    for group in range(2):
        sets.workers("llm", group, 2, **fields)
    eventually(lambda: sum(bool(node_of(pod)) for pod in sets.pods()) == 2, 120, "one group of two is bound")
    eventually(lambda: len(sets.pods()) == 4, 60, "all pods are there")
    yield
    site.add_nodes(1, "more-")
    for leader in ("llm-0", "llm-1"):
        sets.await_bound(leader, 2)


def nodes_asked_for(site: Site) -> Iterator[None]:
    """A gang without room has asked an autoscaler; it starts on the nodes that come, and nothing is asked for any more."""
    group = NodeGroup(site.add_nodes, most=2, labels={"site": site.namespace})
    autoscaler = Autoscaler(site.cluster, site.namespace, groups=[group])
    site.create(site.role("decode", replicas=2, minReplicas=2))
    eventually(lambda: len(autoscaler.requests()) == 1, 120, "it has asked")
    yield
    with autoscaler.running():
        site.await_serving(2)
        eventually(lambda: not [*autoscaler.requests(), *autoscaler.templates()], 120, "nothing is asked for")


def request_that_ended(site: Site) -> Iterator[None]:
    """A request failed, for good as the earlier release had it, which wrote no time: it counts as ended from the first look on.

    So it is asked again when that is due, or at once by hand.
    """
    autoscaler = Autoscaler(site.cluster, site.namespace, fails=True)

    def marks() -> list[str]:
        assert not autoscaler.requests()
        notes = [template["metadata"].get("annotations", {}) for template in autoscaler.templates()]
        assert notes
        return [note["covey.dev/ask-ended"] for note in notes]

    def is_asked_again(mark: str) -> bool:
        assert mark.startswith("{"), mark
        return bool(json.loads(mark)["again"])

    site.create(site.role("decode"))
    with autoscaler.running():
        eventually(marks, 120, "it has asked, and the request has ended")
    assert not any(mark.startswith("{") for mark in marks())
    yield
    eventually(lambda: all(map(is_asked_again, marks())), 120, "it is written when it is asked again")
    message = site.await_condition("CapacityAsked", "False", "CapacityFailed")
    assert "asked again after" in message
    for template in autoscaler.templates():
        site.cluster.api("DELETE", f"/api/v1/namespaces/{site.namespace}/podtemplates/{name_of(template)}")
    autoscaler.fails = False
    autoscaler.groups = [NodeGroup(site.add_nodes, most=1, labels={"site": site.namespace})]
    with autoscaler.running():
        site.await_serving(1)


def quota_too_small(site: Site) -> Iterator[None]:
    """What the quota of the namespace does not allow waits without a pod, and starts when it does."""
    site.add_nodes(2)

    def limit(devices: int) -> Object:
        hard = {"hard": {"requests.nvidia.com/gpu": str(devices)}}
        return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus"}, "spec": hard}

    site.cluster.api("POST", site.path("ResourceQuota"), limit(8))
    site.create(site.role("decode", replicas=2, minReplicas=2))
    site.await_condition("Admitted", "False", "QuotaExceeded")
    assert not site.pods()
    yield
    site.cluster.api("PATCH", site.path("ResourceQuota", "gpus"), limit(16))
    site.await_serving(2)


def unkept_constraint(site: Site) -> Iterator[None]:
    """A constraint of its pods that a pin switches off, and that is refused by now; it is repaired and rolled out all the same."""
    site.add_nodes(3)
    spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}

    def router(image: str) -> Object:
        made = site.role("router", replicas=2, minReplicas=1, image=image)
        made["template"]["spec"]["topologySpreadConstraints"] = [{**spread, "labelSelector": {}}]
        return made

    site.create(router("1"))
    before = site.await_serving(2)
    yield
    site.await_condition("ConstraintsUnkept", "True", "Unsupported")
    site.delete("Pod", name_of(before[0]))
    eventually(lambda: uid_of(before[0]) not in uids(site.pods()), describe="the pod is gone")
    site.await_serving(2)
    site.change({"roles": [router("2")]})

    def is_rolled_out() -> bool:
        site.finish_drains()
        pods = site.pods()
        assert [pod["spec"]["containers"][0]["image"] for pod in pods] == ["registry.test/engine:2"] * 2
        return all(map(serves, pods))

    eventually(is_rolled_out, 180, "the rollout ends")


#: A change that touches what runs adds a part, or to one of them.
PARTS: Final[tuple[Part, ...]] = (
    at_rest,
    rollout_half_way,
    sidecar_that_restarted,
    claim_in_flight,
    waiting_job,
    suspended_job,
    leader_worker_set,
    nodes_asked_for,
    request_that_ended,
    quota_too_small,
    unkept_constraint,
)


@dataclass
class Story:
    """One cluster, what is installed in it, and the parts that have begun there."""

    cluster: Cluster
    helm: Helm
    sites: dict[Part, Site] = field(default_factory=dict)
    begun: dict[Part, Iterator[None]] = field(default_factory=dict)

    def upgrade(self, *flags: str) -> None:
        """Upgrade to this release as docs/operations/installation.md has it."""
        self.helm.run(
            "upgrade", "covey", str(CHART), f"--namespace={NAMESPACE}", "--reset-then-reuse-values", "--wait", *flags
        )

    def roll_back(self, *flags: str) -> None:
        """Go back to the release that was installed first, as docs/operations/installation.md has it."""
        self.helm.run("rollback", "covey", "1", f"--namespace={NAMESPACE}", "--wait", *flags)

    def begin(self, part: Part) -> None:
        """Make a site for a part, and play it up to the change."""
        name = part.__name__.replace("_", "-")
        self.cluster.api("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        eventually(lambda: self.cluster.api("GET", f"/api/v1/namespaces/{name}/serviceaccounts/default"))
        self.sites[part] = Site(self.cluster, name)
        self.begun[part] = part(self.sites[part])
        next(self.begun[part])

    def change_release(self, tag: str, change: Callable[[], None]) -> None:
        """Change the release, and wait until its processes have seen to everything; nothing of the parts may change.

        Args:
            tag: Of the images that run then.
            change: Does it by Helm, and waits.
        """
        # Where CRDs have just been changed their kinds are not served for a moment.
        before = eventually(lambda: {part: facts(site) for part, site in self.sites.items()}, 60, "all is served")
        with self.cluster.record(PODS) as recording:
            at_first = len(recording.events)
            change()
            eventually(lambda: self._runs(tag), 180, f"only {tag} runs")
            self._await_seen()
            history = [
                pod for pod in recording.events[at_first:] if pod[1]["metadata"]["namespace"] in self._namespaces
            ]
        assert [(kind, name_of(pod)) for kind, pod in history if kind in {"ADDED", "DELETED"}] == []
        for part, site in self.sites.items():
            assert facts(site) == before[part]
            ready = {uid for name, uid, _, is_serving in before[part]["pods"] if is_serving}
            assert [name_of(pod) for _, pod in history if uid_of(pod) in ready and not serves(pod)] == []

    def end(self, part: Part) -> None:
        """Play a part to its end."""
        assert next(self.begun.pop(part), "ended") == "ended"

    @property
    def _namespaces(self) -> set[str]:
        return {site.namespace for site in self.sites.values()}

    def _runs(self, tag: str) -> bool:
        pods = self.cluster.api("GET", f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        names = [
            container["image"]
            for pod in pods
            for container in pod["spec"]["containers"]
            if container["name"] == "covey"
        ]
        assert len(names) == 2, names
        assert all(name.endswith(f":{tag}") for name in names), names
        return all(map(is_ready, pods))

    def _await_seen(self) -> None:
        """Wait until the operator has seen to every resource, and until a newcomer has its place."""

        def change_all(seconds: int) -> bool:
            for site in self.sites.values():
                for resource in site.all("DisaggregatedInference"):
                    site.change({"rollout": {"progressDeadlineSeconds": seconds}}, name_of(resource))
            return True

        for seconds in (DEADLINE + 1, DEADLINE):
            # Where CRDs have just been changed their kinds are not served for a moment.
            eventually(partial(change_all, seconds), 60, "all is served")
            for site in self.sites.values():
                eventually(
                    lambda site=site: all(map(is_seen, site.all("DisaggregatedInference"))),
                    180,
                    f"all of {site.namespace} is seen",
                )
        newcomer = Serving(self.cluster, "default")
        newcomer.create(workers("decode", gpus=0), name="newcomer")
        newcomer.await_ready(1, inference="newcomer")
        newcomer.delete("DisaggregatedInference", "newcomer")
        eventually(lambda: not newcomer.all("Pod"), 60, "the newcomer is gone")


def is_seen(resource: Object) -> bool:
    """The operator has written the status of this generation."""
    return bool(resource["status"]["observedGeneration"] == resource["metadata"]["generation"])


def facts(site: Site) -> Object:
    """What may not change while nothing happens."""
    requests = Autoscaler(site.cluster, site.namespace).requests()
    groups = site.all("CompositePodGroup")
    return {
        "pods": sorted(
            (name_of(pod), uid_of(pod), pod["metadata"]["labels"].get("covey.dev/revision", ""), serves(pod))
            for pod in site.all("Pod")
        ),
        "places": sorted((name_of(pod), node_of(pod), is_gated(pod)) for pod in site.all("Pod")),
        "revisions": sorted(map(name_of, site.all("ControllerRevision"))),
        "claims": {name_of(group): group["status"]["claim"] for group in groups if "claim" in group.get("status", {})},
        "requests": sorted(map(uid_of, requests)),
    }


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """The earlier release, installed with its own chart; every part of the story has begun."""
    with tarfile.open(RELEASES / f"covey-{OLD}.tar.xz") as archive:
        # Python 3.11.2 knows no filters yet.
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)
        archive.extractall(code := tmp_path_factory.mktemp("code"))
    with Cluster(crds=(), scheduler_config="") as cluster:
        cluster.apply(PROVISIONING_REQUEST)
        cluster.run_pods({f":{OLD}": code})
        cluster.add_nodes(Nodes(nodes=2, gpus=0))
        story = Story(cluster, Helm(tmp_path_factory.mktemp("helm"), Path(cluster.kubeconfig)))
        story.helm.install(VALUES, chart=OLD_CHART)
        # One by one: what each has asked for by the end of the last is what it asks for.
        for part in PARTS:
            story.begin(part)
        yield story


def test_an_upgrade_makes_no_pod_anew(story: Story) -> None:
    story.change_release(NEW, story.upgrade)


def test_a_rollback_makes_no_pod_anew(story: Story) -> None:
    story.change_release(OLD, story.roll_back)


def test_an_upgrade_after_crds_were_applied_by_hand_makes_no_pod_anew(story: Story) -> None:
    story.cluster.kubectl("apply", f"--filename={ROOT}/crds")
    story.change_release(NEW, lambda: story.upgrade("--take-ownership", "--force-conflicts"))


def test_a_rollback_after_crds_were_applied_by_hand_makes_no_pod_anew(story: Story) -> None:
    story.change_release(OLD, lambda: story.roll_back("--force-conflicts"))


def test_the_next_upgrade_makes_no_pod_anew(story: Story) -> None:
    story.change_release(NEW, story.upgrade)


@pytest.fixture(scope="module")
def ends(story: Story) -> dict[Part, Future[None]]:
    """All parts played to their ends, at the same time; what one raises is raised where it is asked for."""
    with ThreadPoolExecutor(len(PARTS)) as pool:
        return {part: pool.submit(story.end, part) for part in PARTS}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_what_was_under_way_ends(ends: dict[Part, Future[None]], part: Part) -> None:
    ends[part].result()

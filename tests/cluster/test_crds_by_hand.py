"""The CRDs as people apply and delete them: the folder's name and kubectl, in the tree's root."""

from collections.abc import Iterator

import pytest

from localcluster import Cluster, eventually
from localcluster.programs import ROOT

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def bare() -> Iterator[Cluster]:
    """A control plane without anything of Covey's."""
    with Cluster(kwok=False, crds=()) as running:
        yield running


def test_kubectl_takes_the_folder(bare: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    # Without a slash: kubectl would enter no symbolic link of that name.
    assert bare.kubectl("apply", "-f", "crds").count(" created") == 7
    # What the API server would store otherwise were a change each time, and a conflict for those who apply by the server.
    assert bare.kubectl("apply", "-f", "crds").count(" unchanged") == 7
    assert bare.kubectl("apply", "--server-side", "-f", "crds").count(" serverside-applied") == 7
    for crd in bare.api("GET", CRDS)["items"]:
        # A kind has an end only once it has storage.
        kind = f"/apis/{crd['spec']['group']}/v1alpha1/{crd['spec']['names']['plural']}"
        eventually(lambda kind=kind: bare.api("GET", kind), 60, kind)
    assert bare.kubectl("delete", "--wait=false", "-f", "crds/").count(" deleted") == 7
    eventually(lambda: not bare.api("GET", CRDS)["items"], 120, "all CRDs are gone")

"""The CRDs as people apply them: the folder's name and kubectl, in the tree's root."""

import pytest

from localcluster import Cluster
from localcluster.programs import ROOT


def test_folder_of_the_crds_is_one_for_kubectl_and_nothing_changes_when_it_is_applied_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    count = len(list((ROOT / "crds").glob("*.yaml")))
    # Without a slash: kubectl would enter no symbolic link of that name.
    first = cluster.kubectl("apply", "-f", "crds")
    assert len(first.splitlines()) == count
    # What the API server would store otherwise were a change each time, and a conflict for those who apply by the server.
    assert cluster.kubectl("apply", "-f", "crds").count(" unchanged") == count
    assert cluster.kubectl("apply", "--server-side", "-f", "crds").count(" serverside-applied") == count

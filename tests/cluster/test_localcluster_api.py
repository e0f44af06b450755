"""Requests and watches of tests and tools, which are made with the official client."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from kubernetes.client import ApiException

from localcluster import Cluster, eventually, request
from localcluster.watch import CUT_OFF, WatchStream


@pytest.fixture
def maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def made(cluster: Cluster, maps: str, name: str = "one") -> dict[str, Any]:
    return dict(cluster.api("POST", maps, {"metadata": {"name": name, "labels": {"mine": ""}}, "data": {"a": "1"}}))


def test_proxies_of_the_environment_are_not_asked(
    cluster: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with cluster.service_account_client(namespace, "nobody") as nobody:
        assert request(nobody, "GET", "/version")["major"] == "1"


def test_a_watch_begins_right_after_a_version(cluster: Cluster, maps: str) -> None:
    version, *_ = [made(cluster, maps, f"n{number}")["metadata"]["resourceVersion"] for number in range(3)]
    watch = WatchStream(cluster.client, f"{maps}?labelSelector=mine", version)
    seen = [event["object"]["metadata"]["name"] for _, event in zip(range(2), watch, strict=False)]
    assert seen == ["n1", "n2"]


def test_a_version_that_is_gone_is_an_error(cluster: Cluster) -> None:
    # The API server has events of a kind from the moment on when the kind was installed.
    path = "/apis/inference.covey.dev/v1alpha1/disaggregatedinferences?timeoutSeconds=10"
    with pytest.raises(ApiException) as gone:
        list(WatchStream(cluster.client, path, "1"))
    assert gone.value.status == 410


def test_a_watch_that_is_refused_is_an_error(cluster: Cluster, namespace: str, maps: str) -> None:
    with cluster.service_account_client(namespace, "nobody") as nobody, pytest.raises(ApiException) as refused:
        WatchStream(nobody, maps, "1")
    assert refused.value.status == 403


def test_a_watch_is_ended_from_another_thread(cluster: Cluster, maps: str) -> None:
    version = made(cluster, maps)["metadata"]["resourceVersion"]
    watch = WatchStream(cluster.client, maps, version)
    seen: list[dict[str, Any]] = []

    def follow() -> None:
        try:
            seen.extend(watch)
        except CUT_OFF:
            return

    reader = threading.Thread(target=follow, daemon=True)
    reader.start()
    watch.close()
    eventually(lambda: not reader.is_alive(), 30, "the watch has ended")
    assert not seen

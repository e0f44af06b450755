"""Objects that the operator watches and cannot read: nobody else is harmed, whether it meets them running or at its start."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.request import urlopen

import pytest

from builders.manifests import role
from cluster.operating import operator
from cluster.workbench import Workbench
from localcluster import Cluster, Process

__all__ = ["operator"]
#: ``data`` of a ControllerRevision may be any object.
_DATA = {"deep": '{"a":' * 9_000 + "1" + "}" * 9_000}


@pytest.fixture
def bench(cluster: Cluster, namespace: str) -> Iterator[Workbench]:
    """A namespace with records that cannot be read; they go in the end, so that lists are whole again."""
    for name, data in _DATA.items():
        metadata = {"name": name, "labels": {"covey.dev/inference": "llm"}}
        body = {
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": metadata,
            "revision": 1,
            "data": "DATA",
        }
        file = cluster.directory / f"{name}.json"
        file.write_text(json.dumps(body).replace('"DATA"', data))
        cluster.kubectl("create", "-n", namespace, "-f", str(file))
    yield Workbench(cluster, namespace)
    cluster.kubectl("delete", "controllerrevisions", "--all", "-n", namespace)


def test_records_that_cannot_be_read_stop_nobody(bench: Workbench, operator: Process) -> None:
    bench.create(role("r"))
    bench.await_pods(1)
    operator.restart(kill=True)
    bench.create(role("r"), name="later")
    bench.await_pods(2)
    with urlopen(operator.metrics_url) as page:
        counted = [
            line for line in page.read().decode().splitlines() if line.startswith("covey_unreadable_objects_total{")
        ]
    assert any('resource="controllerrevisions"' in line for line in counted), counted

"""Another release of the operator takes over, and nothing that runs is touched.

The other release is this one with a rolled field more, so that it computes other hashes of the same content.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import covey
from builders.manifests import role, template
from cluster.workbench import Workbench, label, uids
from localcluster import Cluster, Process, eventually
from localcluster.programs import answers

FIELD = """    size: Annotated[int, ROLLED, Field(ge=1, le=999)] = 1
"""
MORE = """    warmth: Annotated[int, ROLLED, Field(ge=0)] = 3
    \"\"\"A field of a later release, with a default.\"\"\"
"""


@pytest.fixture
def operator(cluster: Cluster) -> Iterator[Process]:
    try:
        yield cluster.start_covey("operator")
    finally:
        cluster.stop_all()


@pytest.fixture
def later(cluster: Cluster, operator: Process, tmp_path: Path) -> Iterator[Process]:
    """The later release; not running yet."""
    shutil.copytree(Path(covey.__file__).parent, tmp_path / "covey", ignore=shutil.ignore_patterns("__pycache__"))
    models = tmp_path / "covey" / "api" / "roles.py"
    text = models.read_text()
    assert text.count(FIELD) == 1
    models.write_text(text.replace(FIELD, MORE + FIELD))
    process = Process(
        "covey-operator-later",
        operator.command,
        directory=cluster.directory,
        ready=lambda: answers(f"{operator.health_url}/readyz"),
        environment={"PYTHONPATH": str(tmp_path)},
    )
    yield process
    if process.alive:
        process.stop()


@pytest.mark.slow  # two releases in turn
def test_release_when_it_hashes_otherwise_touches_nothing_and_neither_does_the_way_back(
    cluster: Cluster, namespace: str, operator: Process, later: Process, nodes: Callable[..., list[str]]
) -> None:
    bench = Workbench(cluster, namespace)
    (node, *_) = nodes(blocks=1, racks=1, nodes=1)
    bench.create()
    bench.bind(bench.await_pods(6), node)
    # One that waits: nothing keeps its pods from being made anew but that there is no reason for it.
    bench.create(role("decode", replicas=2), name="waits")
    bench.await_pods(8)
    bench.await_condition("Admitted", "False", "Waiting", name="waits")
    everything = {
        kind: uids(bench.owned(kind)) for kind in ("Pod", "PodGroup", "CompositePodGroup", "Workload", "Service")
    }
    revisions = {label(pod, "role"): label(pod, "revision") for pod in bench.pods(inference="llm")}
    for before, after, count in ((operator, later, 3), (later, operator, 4)):
        before.stop()
        after.start()
        for name in ("llm", "waits"):
            bench.change(
                {
                    "roles": [
                        *([role("prefill", replicas=2, size=2)] if name == "llm" else ()),
                        role("decode", replicas=count),
                    ]
                },
                name,
            )
        bench.await_pods(4 + count, inference="llm")
        bench.await_pods(count, inference="waits")
        for kind, found in everything.items():
            assert found <= uids(bench.owned(kind)), f"{kind} was replaced"
        # What is added is of the revision that runs, under the name that it has.
        assert {label(pod, "role"): label(pod, "revision") for pod in bench.pods(inference="llm")} == revisions
        assert {label(pod, "revision") for pod in bench.pods(inference="waits")} == {revisions["decode"]}
        assert eventually(lambda: bench.condition("Progressing"))["reason"] != "RollingOut"
    # A real change is one to either.
    changed = template(nodeSelector={"a": "b"})
    bench.change({"roles": [role("decode", replicas=4, template=changed)]}, "waits")
    eventually(
        lambda: {str(pod["spec"].get("nodeSelector")) for pod in bench.pods(inference="waits")} == {str({"a": "b"})}
    )

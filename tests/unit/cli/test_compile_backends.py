"""`covey compile --backend`: the same resource in the objects of every backend and dialect."""

from __future__ import annotations

import pytest

from builders.files import EXAMPLES, covey

EXAMPLE = ("-f", EXAMPLES / "disaggregated.yaml", "--topology", EXAMPLES / "topology.yaml")


@pytest.mark.parametrize(
    ("arguments", "groups"),
    [
        (("--backend", "Extender"), "scheduling.covey.dev"),
        (("--backend", "Kubernetes"), "scheduling.k8s.io"),
        (("--backend", "Kubernetes", "--dialect", "1.36"), "scheduling.k8s.io"),
        (("--backend", "Kubernetes", "--dialect", "1.35"), "scheduling.k8s.io"),
        (("--backend", "Volcano"), "scheduling.volcano.sh"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, tuple) else None,
)
def test_every_backend_prints_its_own_groups_and_the_same_pods(arguments: tuple[str, ...], groups: str) -> None:
    result = covey("compile", *EXAMPLE, *arguments, "-o", "name")
    assert result.exit_code == 0, result.stderr
    printed = result.stdout.splitlines()
    assert printed[0].endswith(f".{groups}/llama") or printed[0].endswith(f".{groups}/llama-0")
    assert len([line for line in printed if line.startswith("pod/")]) == 16
    assert len([line for line in printed if line.startswith("service/")]) == 2


def test_a_dialect_that_there_is_not() -> None:
    result = covey("compile", *EXAMPLE, "--backend", "Kubernetes", "--dialect", "1.34")
    assert result.exit_code == 2
    assert "Kubernetes has no 1.34; use one of 1.37, 1.37-flat, 1.36-preemption, 1.36, 1.35" in result.stderr
    result = covey("compile", *EXAMPLE, "--backend", "Volcano", "--dialect", "1.14")
    assert "Volcano has no 1.14; leave it out" in result.stderr


def test_what_a_backend_cannot_carry_is_refused_and_nothing_is_printed() -> None:
    result = covey("compile", "-f", EXAMPLES / "disaggregated.yaml", "--backend", "Kubernetes")
    assert result.exit_code == 2
    assert not result.stdout
    assert "spec.topology.required names level block, but there is no ClusterTopology" in result.stderr
    assert result.stderr.rstrip().endswith("or give the ClusterTopology with --topology")

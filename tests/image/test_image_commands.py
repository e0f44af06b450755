"""What a person gets who runs a command of the image: read-only, without a home, without rich, without a network."""

import json

import pytest
import yaml

import confinement
from imaging import ROOT, Image

NODES = ROOT / "examples" / "offline" / "nodes.json"


@pytest.fixture(scope="module")
def files(image: Image) -> tuple[str, ...]:
    """Manifest and nodes, where the image's user can read them."""
    image.root.chmod(0o755)
    made = image.root / "work"
    made.mkdir(exist_ok=True)
    for source in (ROOT / "examples" / "disaggregated.yaml", NODES):
        (made / source.name).write_bytes(source.read_bytes())
    return ("-f", str(made / "disaggregated.yaml"), "--nodes", str(made / NODES.name))


def test_help_and_version(image: Image) -> None:
    assert "operator" in confinement.run(image, "--help").stdout
    done = confinement.run(image, "version", "--client")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Client Version: ")


def test_the_configuration_of_kube_scheduler(image: Image) -> None:
    done = confinement.run(image, "scheduler", "--print-scheduler-config")
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["kind"] == "KubeSchedulerConfiguration"


def test_the_crds_are_the_tree_s(image: Image) -> None:
    done = confinement.run(image, "crds")
    assert done.returncode == 0, done.stderr
    printed = {each["metadata"]["name"]: each for each in yaml.safe_load_all(done.stdout)}
    written = [yaml.safe_load(path.read_text()) for path in (ROOT / "crds").glob("*.yaml")]
    assert printed == {each["metadata"]["name"]: each for each in written}


def test_a_plan_in_json_needs_no_rich(image: Image, files: tuple[str, ...]) -> None:
    done = confinement.run(image, "plan", *files, "-o", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


@pytest.mark.parametrize("form", ["table", "tree", "picture"])
def test_what_needs_rich_says_so(image: Image, files: tuple[str, ...], form: str) -> None:
    done = confinement.run(image, "plan", *files, "-o", form)
    assert done.returncode != 0
    assert "needs rich" in done.stderr
    assert "-o json" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [["operator"], ["scheduler"], ["version"], ["status", "x"], ["top"]])
def test_without_a_cluster_one_sentence_says_so(image: Image, command: list[str]) -> None:
    done = confinement.run(image, *command)
    assert done.returncode != 0
    last = done.stderr.splitlines()[-1]
    assert "KUBECONFIG" in last or "needs rich" in last
    assert "Traceback" not in done.stderr


def test_the_tree_cannot_be_written(image: Image) -> None:
    target = image.prefix / "crds"
    done = confinement.run(image, "crds", "--output-dir", str(target))
    assert done.returncode != 0
    assert "read-only" in done.stderr or "permission denied" in done.stderr
    assert not target.exists()

"""What a page is run in: a copy of the repository, tools, and the cluster that it asks for.

The cluster is real, with simulated nodes; Covey comes into it as readers bring it there, with Helm.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from cluster.job_gangs import is_in_force
from docs.shell import Shell
from docs.storage import Storage
from handbook.pages import ROOT, Page, PageError
from localcluster import Background, Cluster, Nodes, cleanup
from localcluster.binaries import ensure, ensure_tool
from localcluster.pods import ADDRESSES, Runner

_LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "build", "dist", "tests", "__pycache__", ".*_cache", ".hypothesis")


class Ground:
    """A control plane without anything in it, for one page after another; it is started for the first that asks for it."""

    def __init__(self) -> None:
        self._cluster: Cluster | None = None

    @contextlib.contextmanager
    def cluster(self) -> Iterator[Cluster]:
        """The control plane; nothing remains of what is done with it."""
        if self._cluster is None:
            cluster = Cluster(crds=(), scheduler_config="")
            cluster.start()
            self._storage = Storage(cluster.processes["etcd"].url)
            # One that has not come up is left to its guard, and the next page begins anew.
            self._cluster = cluster
        try:
            yield self._cluster
        finally:
            # It keeps in mind whose leases it holds.
            kwok = self._cluster.processes["kwok"]
            try:
                kwok.stop()
                self._storage.restore()
                kwok.start()
            except BaseException:
                self.end()
                raise

    def end(self) -> None:
        """Stop the control plane, where there is one."""
        if self._cluster is not None:
            self._cluster.stop()
            self._cluster = None

    def addresses(self) -> set[Path]:
        """The files of those pods of Covey that have processes."""
        return set() if self._cluster is None else set(self._cluster.directory.glob(f"pods/*/{ADDRESSES}"))

    def takes_jobs(self) -> bool:
        """Tell whether both policies of Jobs are in force, for which Helm does not wait."""
        return self._cluster is not None and is_in_force(self._cluster)


class _Pods(Background):
    """Covey's pods run, in forks: a page that installs Covey starts three or four processes."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._runner = Runner(cluster.directory, cluster.client, fork=True)

    def _run(self) -> None:
        self._runner.run(self.ended)


@contextlib.contextmanager
def world(page: Page, place: Path, ground: Ground) -> Iterator[Shell]:
    """A shell for a page, in the cluster that the page asks for."""
    copy, home = place / "covey", place / "home"
    shutil.copytree(ROOT, copy, symlinks=True, ignore=_LEFT_OUT)
    (copy / ".venv").symlink_to(ROOT / ".venv")
    home.mkdir()
    with _cluster(page, ground, home) as kubeconfig, Shell(copy, _environment(home, kubeconfig)) as shell:
        try:
            yield shell
        finally:
            _stop_detached(shell, kubeconfig)


def outliving(shell: Shell, ground: Ground) -> set[str]:
    """Pods of Covey that are gone while their processes end: a kubelet would have kept the pods so long."""
    there = set(shell.run("kubectl get pods -A -o name").printed.split())
    running = {found.parent.name for found in ground.addresses()}
    return {name for name in running if f"pod/{name}" not in there}


def _settings(page: Page) -> argparse.Namespace:
    """What the page's `cluster` directive asks for."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("kind", choices=["installed", "empty", "none"])
    for name, default in (("blocks", 2), ("racks", 3), ("nodes", 6), ("gpus", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--preset", default="kueue")
    parser.add_argument("--set", action="append", default=[])
    if len(page.settings) > 1:
        raise PageError(f"{page.path}:{page.settings[1].line}: a page has one cluster")
    words = page.settings[0].rest.split() if page.settings else ["installed"]
    return parser.parse_args(words)


@contextlib.contextmanager
def _cluster(page: Page, ground: Ground, home: Path) -> Iterator[Path]:
    """The cluster's kubeconfig; an empty file where the page wants none."""
    settings = _settings(page)
    kubeconfig = home / "kubeconfig"
    if settings.kind == "none":
        kubeconfig.touch()
        yield kubeconfig
        return
    with ground.cluster() as cluster, _Pods(cluster):
        # As `make cluster` does: the examples of engines ask for a network adapter.
        adapters = {"rdma/ib": "8"}
        nodes = Nodes(
            settings.blocks, settings.racks, settings.nodes, settings.gpus, settings.preset, resources=adapters
        )
        cluster.add_nodes(nodes)
        # A copy, since pages change the current context.
        shutil.copy(cluster.kubeconfig, kubeconfig)
        if settings.kind == "installed":
            _install(home, kubeconfig, settings.set)
        yield kubeconfig


def _install(home: Path, kubeconfig: Path, values: list[str]) -> None:
    flags = [f"--set={each}" for each in values]
    helm = [ensure_tool("helm"), "install", "covey", ROOT / "helm" / "covey", "-n", "covey-system"]
    subprocess.run(
        [*helm, "--create-namespace", "--wait", "--timeout=200s", *flags],
        env=os.environ | _environment(home, kubeconfig),
        check=True,
        capture_output=True,
    )


def _environment(home: Path, kubeconfig: Path) -> dict[str, str]:
    programs = [Path(sys.executable).parent, ensure_tool("helm").parent, ensure()["kubectl"].parent]
    return {
        "HOME": str(home),
        # What was built is found again.
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
        **{f"HELM_{kind}_HOME": str(home / "helm" / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")},
        "KUBECONFIG": str(kubeconfig),
        "PATH": ":".join([*map(str, programs), os.environ["PATH"]]),
        "PYTHONPATH": str(ROOT / "operator"),
        "COLUMNS": "100",
    }


def _stop_detached(shell: Shell, kubeconfig: Path) -> None:
    """Stop the cluster that the page has started itself, if it has."""
    directory = Path(shell.variable("KUBECONFIG")).parent
    if directory != kubeconfig.parent and (directory / "run" / "etcd.pid").exists():
        cleanup.stop(directory.resolve())

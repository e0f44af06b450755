"""Find or build the programs of the real control plane, and the tools that judge what Covey ships.

Standard library only, so that a build can start before any virtual environment exists:
``python3 dev/localcluster/binaries.py`` builds what the control plane lacks and prints its directory; with names of
tools (``helm promtool``) it builds those and prints where each is.

A program is taken, in this order, from ``$COVEY_ASSETS``, from ``$KUBEBUILDER_ASSETS``
(the convention of envtest), and from the cache, which is keyed by a hash of all that decides what
is built.  Only what none of them has is built, by Go, from the modules in ``dev/controlplane`` and ``dev/tools``.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_HERE = Path(__file__).resolve().parent.parent
KUBERNETES = "v1.37.1"
_STRIPPED = "-s -w"
_VERSIONED = " ".join(
    [_STRIPPED]
    # Without these the server calls itself v0.0.0, and clients misjudge what it can do.
    + [
        f"-X k8s.io/component-base/version.{name}={value}"
        for name, value in (
            ("gitVersion", KUBERNETES),
            ("gitMajor", "1"),
            ("gitMinor", "37"),
            ("gitTreeState", "clean"),
        )
    ]
)


@dataclass(frozen=True)
class Step:
    """One call of ``go build``: the programs it makes, and its wall time in minutes on two cores from nothing."""

    programs: Mapping[str, str]
    minutes: float


@dataclass(frozen=True)
class Module:
    """A Go module without code, only pins checked by go.sum, and what is built from it."""

    folder: Path
    steps: tuple[Step, ...]
    ldflags: str = _STRIPPED
    #: What else decides the content of its cache.
    also: str = ""

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of all programs."""
        return tuple(name for step in self.steps for name in step.programs)

    @property
    def cache(self) -> Path:
        """The directory that holds this build: under the user's cache, named by what decides its content."""
        digest = hashlib.sha256()
        for name in ("go.mod", "go.sum"):
            digest.update((self.folder / name).read_bytes())
        digest.update(f"{self.ldflags} {self.steps} {self.also} {platform.machine()}".encode())
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(base) / "covey" / self.folder.name / digest.hexdigest()[:16]


_STAGE_FOLDERS = ("node/fast", "node/heartbeat-with-lease", "pod/fast")
CONTROL_PLANE = Module(
    _HERE / "controlplane",
    (
        Step({"etcd": "go.etcd.io/etcd/server/v3"}, 0.2),
        Step({"kwok": "sigs.k8s.io/kwok/cmd/kwok"}, 0.2),
        Step(
            {
                "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
                "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
                "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
            },
            5.5,
        ),
        Step({"kubectl": "k8s.io/kubernetes/cmd/kubectl"}, 0.5),
    ),
    _VERSIONED,
    str(_STAGE_FOLDERS),
)
#: Each family has a module of its own: their dependencies do not agree.
TOOLS = (
    Module(_HERE / "tools" / "helm", (Step({"helm": "helm.sh/helm/v4/cmd/helm"}, 1.1),)),
    Module(
        _HERE / "tools" / "manifests",
        (
            Step({"kubeconform": "github.com/yannh/kubeconform/cmd/kubeconform"}, 0.2),
            Step({"kube-score": "github.com/zegl/kube-score/cmd/kube-score"}, 0.5),
        ),
    ),
    Module(
        _HERE / "tools" / "prometheus",
        (
            Step({"promtool": "github.com/prometheus/prometheus/cmd/promtool"}, 2.5),
            Step({"prometheus": "github.com/prometheus/prometheus/cmd/prometheus"}, 1.5),
        ),
    ),
)
STAGES = "kwok-stages.yaml"


class BuildError(Exception):
    """A program can neither be found nor built; the message says what to do."""


@dataclass(frozen=True)
class Binaries:
    """Where each program of the control plane lies, and kwok's description of simulated nodes and pods."""

    paths: Mapping[str, Path]
    stages: Path

    def __getitem__(self, program: str) -> Path:
        return self.paths[program]


def find() -> Binaries | None:
    """The control plane that is there already; None when anything is missing."""
    found = {name: _find(name, CONTROL_PLANE) for name in (*CONTROL_PLANE.programs, STAGES)}
    paths = {name: path for name, path in found.items() if path is not None}
    if len(paths) < len(found):
        return None
    return Binaries({name: paths[name] for name in CONTROL_PLANE.programs}, paths[STAGES])


def ensure(*, report: bool = True) -> Binaries:
    """Find the programs of the control plane, and build first what is missing.

    Raises:
        BuildError: when Go is missing or too old, or a build fails.
    """
    if (binaries := find()) is not None:
        return binaries
    _build(CONTROL_PLANE, f"Kubernetes {KUBERNETES}, etcd and kwok", report=report)
    if (binaries := find()) is None:
        raise BuildError(f"{CONTROL_PLANE.cache} is not complete after the build")
    return binaries


def ensure_tool(name: str, *, report: bool = True) -> Path:
    """Find a program of ``TOOLS``, such as ``helm``, and build it first when it is missing.

    Raises:
        BuildError: when Go is missing or too old, or a build fails.
    """
    module = next(module for module in TOOLS if name in module.programs)
    if (path := _find(name, module)) is None:
        only = tuple(step for step in module.steps if name in step.programs)
        _build(module, name, only, report=report)
        path = module.cache / name
    return path


def _find(name: str, module: Module) -> Path | None:
    given = [Path(os.environ[each]) for each in ("COVEY_ASSETS", "KUBEBUILDER_ASSETS") if os.environ.get(each)]
    return next((place / name for place in [*given, module.cache] if (place / name).is_file()), None)


@contextlib.contextmanager
def _locked(path: Path, *, report: bool) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if report:
                _say("Another process is building the control plane; waiting for it.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(module: Module, what: str, only: tuple[Step, ...] = (), *, report: bool) -> None:
    go = shutil.which("go")
    if go is None:
        raise BuildError(
            f"{what} must be built once and Go was not found: install Go 1.26 or newer, "
            "or name a directory with ready binaries in COVEY_ASSETS."
        )
    target = module.cache
    target.mkdir(parents=True, exist_ok=True)
    with _locked(target / ".lock", report=report):
        steps = [step for step in only or module.steps if any(not (target / name).is_file() for name in step.programs)]
        minutes = sum(step.minutes for step in steps)
        if report and steps:
            _say(
                f"Building {what} from source, once: "
                f"about {max(1, round(minutes))} min on two cores from nothing (cached in {target})"
            )
        for step in steps:
            _build_step(go, step, module, report=report)
        if module is CONTROL_PLANE and not (target / STAGES).is_file():
            _write_stages(go, target)


def _build_step(go: str, step: Step, module: Module, *, report: bool) -> None:
    label, target = ", ".join(step.programs), module.cache
    with tempfile.TemporaryDirectory(dir=target) as scratch, tempfile.TemporaryFile("w+") as log:
        # `go build` of several packages names each program by the last part of its path that is no version.
        command = [go, "build", "-trimpath", "-buildvcs=false", "-ldflags", module.ldflags, "-o", f"{scratch}/"]
        started = time.monotonic()
        process = subprocess.Popen(
            [*command, *step.programs.values()], cwd=module.folder, env=_go_environment(), stdout=log, stderr=log
        )
        try:
            _follow(process, label, step.minutes, started, report=report)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
        if process.returncode:
            log.seek(0)
            raise BuildError(f"Building {label} failed:\n{log.read()[-4000:]}")
        built = {path.name: path for path in Path(scratch).iterdir()}
        for name, package in step.programs.items():
            parts = [part for part in package.split("/") if not part.startswith("v")]
            (built.get(name) or built[parts[-1]]).rename(target / name)


def _follow(process: subprocess.Popen[bytes], label: str, minutes: float, started: float, *, report: bool) -> None:
    """Wait for a build; show on a terminal that it goes on, elsewhere a line every half minute."""
    terminal = sys.stderr.isatty()
    said = started
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)
        elapsed = time.monotonic() - started
        done = process.poll() is not None
        text = f"  {label}: {int(elapsed) // 60}m{int(elapsed) % 60:02d}s" + (
            "" if done else f" of about {minutes:g} min"
        )
        if report and terminal:
            print(f"\r\033[K{text}", end="\n" if done else "", file=sys.stderr, flush=True)
        elif report and (done or time.monotonic() - said >= 30):
            said = time.monotonic()
            _say(text)
        if done:
            return


def _write_stages(go: str, target: Path) -> None:
    """The stages of kwok for nodes and pods, copied from the module that it was built from."""
    listed = subprocess.run(
        [go, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"],
        cwd=CONTROL_PLANE.folder, env=_go_environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    root = Path(listed.stdout.strip()) / "kustomize" / "stage"
    texts = [
        path.read_text()
        for folder in _STAGE_FOLDERS
        for path in sorted((root / folder).glob("*.yaml"))
        if path.name != "kustomization.yaml"
    ]
    if not texts:
        raise BuildError(
            f"The stages of kwok are not in {root}: run `go mod download` in {CONTROL_PLANE.folder}, or put a {STAGES} beside the "
            "programs of COVEY_ASSETS"
        )
    partial = target / f"{STAGES}.partial"
    partial.write_text("\n---\n".join(texts))
    partial.rename(target / STAGES)


def _go_environment() -> dict[str, str]:
    return os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(names: list[str]) -> int:
    """Build what is missing and print where it is: the control plane's directory, or each tool that is named."""
    try:
        if names:
            print("\n".join(str(ensure_tool(name)) for name in names))
        else:
            ensure()
            print(CONTROL_PLANE.cache)
    except BuildError as error:
        _say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

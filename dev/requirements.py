"""Compile the hashed requirement files, or check that they belong to what they were compiled from.

``python dev/requirements.py`` compiles; ``--check`` only compares the digest of the inputs that each file carries
in its first line, so that the check needs no package index.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"
#: Output file → arguments of pip-compile.
FILES = {
    "run.txt": ["pyproject.toml"],
    "build.txt": ["requirements/build.in"],
    "lint.txt": ["requirements/lint.in"],
    "audit.txt": ["requirements/audit.in"],
    "go.txt": ["requirements/go.in"],
    "routers.txt": ["requirements/routers.in"],
    "dev.txt": ["--extra", "cli", "requirements/dev.in", "pyproject.toml"],
}
#: No option that would write the address of a package index into a file.
OPTIONS = [
    "--quiet", "--generate-hashes", "--strip-extras", "--allow-unsafe", "--no-header",
    "--no-emit-index-url", "--no-emit-find-links", "--no-emit-trusted-host", "--no-emit-options",
]  # fmt: skip


def digest() -> str:
    """What the requirement files depend on: the dependencies in pyproject.toml and requirements/*.in."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    inputs = [path.read_text() for path in sorted(FOLDER.glob("*.in"))]
    wanted = [project["dependencies"], project["optional-dependencies"], inputs]
    return hashlib.sha256(repr(wanted).encode()).hexdigest()


def compile_all() -> None:
    """Write every requirement file, keeping the pins that still satisfy the inputs."""
    for name, arguments in FILES.items():
        target = FOLDER / name
        subprocess.run(
            [sys.executable, "-m", "piptools", "compile", *OPTIONS, "--output-file", target, *arguments],
            cwd=ROOT, check=True,
        )  # fmt: skip
        target.write_text(f"# Made by `make requirements` from inputs {digest()}\n" + target.read_text())


def stale() -> list[str]:
    """The requirement files that were compiled from other inputs."""
    return [name for name in FILES if digest() not in (FOLDER / name).read_text().split("\n", 1)[0]]


def main() -> int:
    """Compile, or with ``--check`` only compare."""
    if "--check" not in sys.argv[1:]:
        compile_all()
        return 0
    for name in (names := stale()):
        print(f"requirements/{name} is out of date: run `make requirements`", file=sys.stderr)
    return 1 if names else 0


if __name__ == "__main__":
    raise SystemExit(main())

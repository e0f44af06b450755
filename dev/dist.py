"""``make dist RELEASE_URL=https://…``: what a release consists of, in ``dist``.

The wheel, the chart, an archive for krew with its manifest, the bill of materials of the image (``make sbom``), and
``SHA256SUMS`` of all of them. The files are published below the address as they are; nothing is uploaded here.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

import yaml

from localcluster.binaries import ensure_tool
from localcluster.programs import ROOT

#: What a terminal needs and the image does not have: ``rich``, and what that needs.
_TERMINAL: Final = ("markdown-it-py", "mdurl", "pygments", "rich")
_LAUNCHER: Final = """\
#!/bin/sh
# Installs Covey for this user when it is called first, by the hashes beside it; then it is Covey.
set -eu
here=$(dirname "$(readlink -f "$0")")
place=${{XDG_DATA_HOME:-$HOME/.local/share}}/kubectl-covey/{version}
if [ ! -e "$place/.ready" ]; then
  echo "kubectl covey: installing {version} into $place, once" >&2
  python3 -m venv --clear "$place"
  "$place/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes -r "$here/requirements.txt"
  "$place/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "$here/{wheel}"
  touch "$place/.ready"
fi
exec "$place/bin/kubectl-covey" "$@"
"""


def pins(text: str, names: tuple[str, ...]) -> str:
    """The pinned requirements of some names, with their hashes, out of a requirements file."""
    blocks = re.finditer(r"^([\w.-]+)==(?:.*\\\n)*.*\n", text, re.MULTILINE)
    return "".join(block[0] for block in blocks if block[1] in names)


def krew_manifest(version: str, archive: str, digest: str, url: str) -> str:
    """The manifest of a plugin, as krew's index has it (``krew.googlecontainertools.github.com/v1alpha2``)."""
    platforms = [
        {
            "selector": {"matchLabels": {"os": system, "arch": architecture}},
            "uri": f"{url.rstrip('/')}/{archive}",
            "sha256": digest,
            "bin": "kubectl-covey",
        }
        for system in ("linux", "darwin")
        for architecture in ("amd64", "arm64")
    ]
    manifest = {
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "covey"},
        "spec": {
            "version": f"v{version}",
            "homepage": "https://github.com/covey-dev/covey",
            "shortDescription": "Plan and explain gangs of inference workers",
            "description": "Shows where prefill and decode replicas would land, why something waits, and rollouts of them.\n",
            "caveats": "Needs Python 3.11 or newer with venv; what it needs is installed when it is called first.\n",
            "platforms": platforms,
        },
    }
    return yaml.safe_dump(manifest, sort_keys=False)


def pack(files: dict[str, tuple[bytes, int]]) -> bytes:
    """An archive of files by name, each with its content and mode; the same bytes each time."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, (content, mode) in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(packed.getvalue(), mtime=0)


def build(directory: Path, url: str) -> None:
    """Write everything into a directory, beside what is there already.

    Args:
        directory: where to.
        url: where the files will be published.
    """
    directory.mkdir(parents=True, exist_ok=True)
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*wheel, "--no-build-isolation", "--wheel-dir", directory, ROOT], check=True)
    subprocess.run(
        [ensure_tool("helm", report=False), "package", ROOT / "helm/covey", "--destination", directory],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    [built] = directory.glob("covey-*.whl")
    version = built.name.split("-")[1]
    requirements = (ROOT / "requirements/run.txt").read_text() + pins(
        (ROOT / "requirements/dev.txt").read_text(), _TERMINAL
    )
    archive = directory / f"kubectl-covey-{version}.tar.gz"
    archive.write_bytes(
        pack(
            {
                "LICENSE": ((ROOT / "LICENSE").read_bytes(), 0o644),
                "kubectl-covey": (_LAUNCHER.format(version=version, wheel=built.name).encode(), 0o755),
                "requirements.txt": (requirements.encode(), 0o644),
                built.name: (built.read_bytes(), 0o644),
            }
        )
    )
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    (directory / "covey.krew.yaml").write_text(krew_manifest(version, archive.name, digest, url))
    sums = directory / "SHA256SUMS"
    names = sorted(path.name for path in directory.iterdir() if path.is_file() and path != sums)
    sums.write_text(
        "".join(f"{hashlib.sha256((directory / name).read_bytes()).hexdigest()}  {name}\n" for name in names)
    )


def main() -> None:
    """Build a release."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("url", help="where the files will be published")
    given = parser.parse_args()
    if not re.fullmatch(r"https://\S+", given.url):
        parser.error(f"RELEASE_URL: {given.url or 'nothing'} is no https address; give the one where the files will be")
    build(ROOT / "dist", given.url)
    print(*sorted(str(path.relative_to(ROOT)) for path in (ROOT / "dist").iterdir()), sep="\n")


if __name__ == "__main__":
    main()

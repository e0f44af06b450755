"""``make sbom``: what the image holds, as CycloneDX, written to the file that the argument names.

cyclonedx-py reads the installed prefix; what it cannot know is added: the version of Covey itself, whose metadata is
made by the build, and the hash of every wheel as pip's report of the installation has it. The wheels, and so the
hashes, are those of this machine's architecture; names and versions are the same on both.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

import imaging
from imaging import ROOT, Image, ImageError

_VERSION = SchemaVersion.V1_6
_PURL = "pkg:pypi/{}@{}"


def describe(image: Image) -> dict[str, Any]:
    """The bill of materials of an image.

    Raises:
        ImageError: it cannot be made, or is not as the schema of CycloneDX has it.
    """
    command = [
        sys.executable, "-m", "cyclonedx_py", "environment", "--spec-version", _VERSION.to_version(),
        "--pyproject", str(ROOT / "pyproject.toml"), "--output-reproducible", str(image.program("python")),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, env=image.variables, check=False)
    if done.returncode:
        raise ImageError(f"cyclonedx-py cannot read {image.prefix}: {done.stderr.strip()[-1000:]}")
    bill: dict[str, Any] = json.loads(done.stdout)
    _add_versions_and_hashes(bill, image)
    problem = JsonStrictValidator(_VERSION).validate_str(json.dumps(bill))
    if problem is not None:
        raise ImageError(f"the bill of materials does not follow the schema: {problem}")
    return bill


def _add_versions_and_hashes(bill: dict[str, Any], image: Image) -> None:
    installed = {_normal(str(each["metadata"]["name"])): each for each in image.report}
    ours = bill["metadata"]["component"]
    ours["version"] = installed["covey"]["metadata"]["version"]
    ours["purl"] = _PURL.format("covey", ours["version"])
    for component in bill["components"]:
        component["hashes"] = [{"alg": "SHA-256", "content": _sha256(installed[_normal(component["name"])])}]


def _sha256(installed: dict[str, Any]) -> str:
    return str(installed["download_info"]["archive_info"]["hashes"]["sha256"])


def _normal(name: str) -> str:
    """A package's name as PEP 503 compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def main(target: Path) -> int:
    """Make the image's tree, describe it, and write the file."""
    with tempfile.TemporaryDirectory(prefix="covey-image-") as directory:
        try:
            bill = describe(imaging.build(Path(directory)))
        except ImageError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(bill, indent=2) + "\n")
    print(f"{target}: {len(bill['components'])} packages beside Covey {bill['metadata']['component']['version']}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))

"""What the real kubectl completes behind ``kubectl covey``. No control plane is asked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from localcluster import binaries


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([""], "plan\tShow where everything would be placed"),
        (["ro"], "rollout\t"),
        (["rollout", "st"], "status\t"),
        (["plan", "--add"], "--add-nodes\t"),
    ],
)
def test_kubectl_completes_words_of_covey(words: list[str], expected: str) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = [binaries.ensure()["kubectl"], "__complete", "covey", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PATH": path})
    candidates = done.stdout.splitlines()
    assert any(candidate.startswith(expected) for candidate in candidates), done
    assert candidates[-1] == ":4"


def test_kubectl_completes_files_where_covey_takes_one() -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = [binaries.ensure()["kubectl"], "__complete", "covey", "plan", "-f", ""]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PATH": path})
    assert done.stdout.splitlines() == [":0"]

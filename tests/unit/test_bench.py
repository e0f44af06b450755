"""The benchmarks, which nothing else in the suites imports: each can be loaded, and names what the product has."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOAD = """
import pathlib, runpy
for each in sorted(pathlib.Path("bench").glob("*.py")):
    runpy.run_path(str(each), run_name="loaded")
    print(each.name)
"""


def test_every_benchmark_can_be_loaded() -> None:
    environment = {"PYTHONPATH": ":".join(str(ROOT / each) for each in (".", "operator", "dev", "tests"))}
    found = subprocess.run([sys.executable, "-c", LOAD], cwd=ROOT, env=environment, capture_output=True, check=False)
    assert found.returncode == 0, f"{found.stdout.decode().split()} could be loaded, then: {found.stderr.decode()}"
    assert "plan_speed.py" in found.stdout.decode()

import os
import subprocess
import sys

from localcluster import forks
from localcluster.programs import ROOT


def test_the_first_function_of_a_fork_brings_nothing_else_with_it() -> None:
    """Each fork imports its module: with ``localcluster`` that takes as much processor time as all else until it serves."""
    module = forks.run_covey.__module__
    code = f"import sys, {module}; print(sys.modules.keys() & {{'localcluster', 'covey', 'kubernetes', 'yaml'}})"
    environment = os.environ | {"PYTHONPATH": str(ROOT / "dev")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"

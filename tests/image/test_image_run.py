"""What the image's processes do on a real control plane, confined as a pod with a restricted security context is."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

import confinement
from imaging import Image


def test_the_example_is_bound_by_unprivileged_processes_on_a_read_only_root_without_a_network(image: Image) -> None:
    program = Path(__file__).with_name("confined_run.py")
    # Python says of each module where it comes from.
    verbose = replace(image, environment=image.environment | {"PYTHONVERBOSE": "1"})
    command = [sys.executable, str(program), json.dumps(asdict(verbose), default=str)]
    done = subprocess.run(
        confinement.without_network(command),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    assert found["bound"] == 16
    for name, end in found["ends"].items():
        log = found["logs"][name].splitlines()
        assert end == 0, "\n".join(line for line in log if line.startswith("{"))[-2000:]
        loaded = [line for line in log if line.startswith("# code object from ")]
        assert len(loaded) > 500
        assert not [line for line in loaded if line.endswith(".py")], "compiled at run time: see the Dockerfile's RUN"
    _check_confinement(found["status"].values())


def _check_confinement(statuses: Iterable[dict[str, str]]) -> None:
    """No privilege anywhere; the user with root, the namespaces where they are permitted. Says what was not so."""
    print(f"confined as: {confinement.describe()}")
    for status in statuses:
        assert int(status["CapEff"], 16) == 0
        if os.geteuid() == 0:
            assert status["Uid"].split() == [str(confinement.USER)] * 4
            assert status["NoNewPrivs"] == "1"
        if confinement.is_namespaced():
            assert "ro" in status["root"].split(",")
            assert status["interfaces"] == "lo"

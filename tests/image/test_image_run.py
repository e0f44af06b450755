"""What the image's processes do on a real control plane, confined as a pod with a restricted security context is."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import confinement
from imaging import Image


def test_the_example_is_bound_by_unprivileged_processes_on_a_read_only_root_without_a_network(image: Image) -> None:
    program = Path(__file__).with_name("confined_run.py")
    command = [sys.executable, str(program), json.dumps(asdict(image), default=str)]
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
    for name, status in found["status"].items():
        assert found["ends"][name] == 0, found["logs"][name][-2000:]
        assert "read-only" not in found["logs"][name].lower(), "the process tried to write"
        # Where root runs the tests all of this holds; elsewhere what the machine permits, which the message says.
        if os.geteuid() == 0:
            assert status["Uid"].split() == [str(confinement.USER)] * 4, confinement.describe()
        assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) * 0, confinement.describe()
        if confinement.is_namespaced():
            assert status["NoNewPrivs"] == "1"
            assert "ro" in status["root"].split(","), confinement.describe()
            assert status["interfaces"].split()[2:] in ([], ["lo"]) or status["interfaces"].split()[-1] == "lo"

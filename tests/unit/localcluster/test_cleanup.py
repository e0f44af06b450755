"""What a cluster's directory names is stopped for sure, and nothing else."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from localcluster import cleanup


def test_a_program_that_does_not_end_is_gone_when_the_directory_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cleanup, "STOP_SECONDS", 0.1)
    (tmp_path / "run").mkdir()
    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); signal.pause()"
    command = [sys.executable, "-c", deaf, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        program.stdout.readline()
        (tmp_path / "run" / "deaf.pid").write_text(str(program.pid))
        cleanup.stop(tmp_path)
        state = Path(f"/proc/{program.pid}/stat").read_text().rpartition(")")[2].split()[0]
        assert state == "Z"
        assert program.wait() == -signal.SIGKILL
    assert not tmp_path.exists()


def test_a_number_that_somebody_elses_process_has_got_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "etcd.pid").write_text("1")

    def kill(_pid: int, number: int) -> None:
        assert number == 0, "it must not be sent a signal"
        raise PermissionError

    monkeypatch.setattr(cleanup.os, "kill", kill)
    cleanup.stop(tmp_path)
    assert not tmp_path.exists()

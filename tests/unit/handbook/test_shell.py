"""The shell of a page."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.shell import Shell
from localcluster import eventually


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with Shell(tmp_path, {"HOME": str(tmp_path)}) as running:
        yield running


def test_it_keeps_variables_and_its_directory(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    shell.run("cd below; export ONE=two; three=four")
    assert shell.run("pwd; echo $ONE $three").printed == f"{tmp_path}/below\ntwo four\n"


def test_it_tells_both_streams_and_the_status(shell: Shell) -> None:
    done = shell.run("echo one; echo two >&2; false")
    assert (done.printed, done.status) == ("one\ntwo\n", 1)


def test_what_was_printed_is_copied_where_a_page_leaves_it_out(shell: Shell) -> None:
    shell.run("echo '  export ONE=first'; echo; echo '  export TWO=second:$ONE      # and a remark'")
    assert shell.run("export ONE=… TWO=…     # as printed").status == 0
    assert shell.variable("TWO") == "second:first"


def test_a_command_may_read_nothing_from_the_terminal(shell: Shell) -> None:
    assert shell.run("cat").printed == ""


def test_an_endless_command_is_interrupted(shell: Shell) -> None:
    running = shell.begin("trap 'echo ended; exit' INT; echo begun; while :; do sleep 0.05; done")
    eventually(lambda: running.printed == "begun\n")
    running.interrupt()
    eventually(lambda: running.printed == "begun\nended\n")
    assert shell.run("echo on").printed == "on\n"


def test_a_command_is_interrupted_where_the_tests_ignore_it(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Shell(tmp_path, {"HOME": str(tmp_path)}) as running:
            test_an_endless_command_is_interrupted(running)
    finally:
        signal.signal(signal.SIGINT, before)

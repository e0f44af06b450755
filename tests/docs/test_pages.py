"""Every command of every page runs, in order, and prints what the page shows."""

from pathlib import Path

import pytest

from docs.commands import Command, commands
from docs.output import agrees, difference
from docs.shell import Shell
from docs.world import Ground, outliving, world
from handbook.pages import ROOT, Page, pages, read
from localcluster import eventually

#: What a command may take to print what is shown, where asking again changes nothing.
SECONDS = 180.0
_READING = {
    "kubectl": {"get", "describe", "logs", "wait", "explain", "version", "events", "auth", "top", "api-resources"},
    "helm": {"get", "history", "list", "show", "status", "template"},
    "covey": {"compile", "convert", "crds", "explain", "plan", "status", "top", "version"},
}
_READERS = {"cat", "curl", "grep", "head", "ls"}


def _reads(command: str) -> bool:
    """Whether asking again is harmless."""
    words = command.split()
    if any(word in command for word in ("&&", ";", ">")):
        return False
    if words[:2] == ["kubectl", "covey"]:
        words = words[1:]
    if words[:2] == ["covey", "rollout"]:
        return words[2] in {"history", "status"}
    return words[0] in _READERS or (words[1:2] != [] and words[1] in _READING.get(words[0], ()))


def _run(shell: Shell, page: Page, command: Command) -> None:
    where = f"{page.path}:{command.line}: {command.text}"
    if command.endless:
        running = shell.begin(command.text)
        try:
            shown = command.output or "…"
            eventually(lambda: _compare(shown, running.printed, where), SECONDS, where)
        finally:
            running.interrupt()
        return

    def once() -> bool:
        done = shell.run(command.text)
        assert done.status == command.status, f"{where}\nexit status {done.status}:\n{done.printed}"
        return command.output is None or _compare(command.output, done.printed, where)

    # The time of what only waits is the reader's, and a busy machine may take longer.
    if command.text.startswith("kubectl wait") or (command.output is not None and _reads(command.text)):
        eventually(once, SECONDS, where)
    else:
        once()


def _compare(shown: str, printed: str, where: str) -> bool:
    assert agrees(shown, printed), f"{where}\n{difference(shown, printed)}"
    return True


def _with_commands() -> list[Page]:
    found = [read(path) for path in pages()]
    return [page for page in found if any(commands(page, block) for block in page.blocks)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", _with_commands(), ids=lambda page: page.path)
def test_every_command_runs(page: Page, tmp_path: Path, ground: Ground) -> None:
    with world(page, tmp_path, ground) as shell:
        for block in page.blocks:
            if block.title and block.language == "yaml" and not (ROOT / block.title).exists():
                shell.run(f"mkdir -p \"$(dirname '{block.title}')\"")
                (tmp_path / "covey" / block.title).write_text(block.text + "\n")
            for command in commands(page, block):
                _run(shell, page, command)
                if "--for=delete" in command.text:
                    eventually(lambda: not outliving(shell, ground), SECONDS, "their processes end with them")
                if "gangs.jobs=true" in command.text:
                    eventually(ground.takes_jobs, SECONDS, "the policies of Jobs are in force")

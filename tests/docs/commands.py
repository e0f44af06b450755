"""The commands of a page's blocks, with what they must print."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from handbook.pages import Block, Directive, Page, PageError

#: Languages of blocks that are run; every other language is only looked at.
SHELL = "sh"
SESSION = "console"
#: Kinds of reasons why a block cannot be run here.
KINDS = ("docker", "kind", "cloud", "registry", "internet", "gpu", "kubelet", "long")
_REASON = re.compile(r"\((?P<kind>\w+)\): (?P<why>.+)")
_WORDS = {"run", "skip", "exit", "until"}


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        text: as a shell takes it.
        output: what it must print, if the page shows it.
        line: where it stands.
        status: what it must exit with.
        endless: it never ends by itself, and is interrupted when it has printed that.
    """

    text: str
    output: str | None
    line: int
    status: int = 0
    endless: bool = False


@dataclass(frozen=True)
class Skipped:
    """A block that cannot be run here."""

    page: str
    block: Block
    kind: str
    why: str


def commands(page: Page, block: Block) -> list[Command]:
    """The commands of a block; none where it is not one of commands, or is skipped.

    Raises:
        PageError: the block, or a directive before it, keeps to no convention.
    """
    words = {each.word: each for each in block.directives}
    if unknown := words.keys() - _WORDS:
        raise PageError(f"{page.path}:{block.line}: there is no directive {', '.join(sorted(unknown))}")
    if block.language not in {SHELL, SESSION} or "skip" in words:
        return []
    found = list(_session(page, block) if block.language == SESSION else _script(block.text, block.line + 1))
    if not found:
        raise PageError(f"{page.path}:{block.line}: a block of commands without any")
    last = found[-1]
    status = int(words["exit"].rest) if "exit" in words else 0
    return [*found[:-1], Command(last.text, last.output, last.line, status, "until" in words)]


def skipped(page: Page) -> list[Skipped]:
    """The page's blocks that are not run, each with its reason.

    Raises:
        PageError: a reason is missing, or of no known kind.
    """
    return [_reason(page, block, each) for block in page.blocks for each in block.directives if each.word == "skip"]


def script(block: Block) -> list[str]:
    """The commands of a block as they stand, whether it is run or not."""
    text = block.text
    if block.language == SESSION:
        text = "\n".join(line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ "))
    return [command.text for command in _script(text, block.line + 1)]


def _reason(page: Page, block: Block, directive: Directive) -> Skipped:
    found = _REASON.fullmatch(directive.rest)
    if found is None or found["kind"] not in KINDS:
        known = ", ".join(KINDS)
        raise PageError(f"{page.path}:{directive.line}: say `skip (KIND): why`, with KIND one of {known}")
    return Skipped(page.path, block, found["kind"], found["why"])


def _script(text: str, line: int) -> Iterator[Command]:
    """Commands without output: as many lines for each as bash needs to find it whole."""
    waiting: list[str] = []
    begin = line
    for number, each in enumerate(text.splitlines(), line):
        if not waiting:
            begin = number
            if not each.strip() or each.lstrip().startswith("#"):
                continue
        waiting.append(each)
        if _whole("\n".join(waiting)):
            yield Command("\n".join(waiting), None, begin)
            waiting = []
    if waiting:
        yield Command("\n".join(waiting), None, begin)


def _session(page: Page, block: Block) -> Iterator[Command]:
    """Commands behind `$ `, each with the lines that follow as its output."""
    lines = block.text.splitlines()
    if not lines or not lines[0].startswith("$ "):
        raise PageError(f"{page.path}:{block.line}: a session begins with `$ ` and a command")
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        text, below = lines[start].removeprefix("$ "), start + 1
        while below < end and not _whole(text):
            text += "\n" + lines[below].removeprefix("> ")
            below += 1
        yield Command(text, "\n".join(lines[below:end]).strip("\n"), block.line + 1 + start)


def _whole(text: str) -> bool:
    if text.rstrip().endswith("\\"):
        return False
    done = subprocess.run(["bash", "-n"], input=text + "\n", capture_output=True, text=True, check=False)
    return done.returncode == 0 and not done.stderr

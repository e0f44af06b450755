"""Every block of every page is run, or checked, or says why not."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from covey.cli.main import covey
from docs.commands import SESSION, SHELL, commands, script, skipped
from handbook.pages import ROOT, Block, Page, pages, read

#: Blocks that are looked at, and not run.
TEXTS = {"yaml", "text", "json", "python", "promql", "lua", "toml", "ini", "dockerfile"}
_TARGET = re.compile(r"^(?P<name>[\w-]+):", re.MULTILINE)
_INLINE = re.compile(r"`(?P<text>(?:covey|kubectl covey|make) [^`]+)`")
_PLACEHOLDER = re.compile(r"[A-Z…|]|^\[|\]$")

PAGES = [read(path) for path in pages()]


def test_every_block_is_of_a_known_language(subtests: pytest.Subtests) -> None:
    for page in PAGES:
        with subtests.test(page.path):
            for block in page.blocks:
                where = f"{page.path}:{block.line}"
                assert block.language in TEXTS | {SHELL, SESSION}, f"{where}: ```{block.language}"
                if block.language in TEXTS:
                    assert not re.search(r"^\$ ", block.text, re.MULTILINE), f"{where}: a command that nobody runs"
                commands(page, block)


def test_yaml_is_yaml_and_excerpts_are_what_files_say(subtests: pytest.Subtests) -> None:
    for page in PAGES:
        with subtests.test(page.path):
            for block in page.blocks:
                if block.language == "yaml":
                    list(yaml.safe_load_all(block.text))
                    file = ROOT / block.title
                    if block.title and file.is_file():
                        assert block.text in file.read_text(), (
                            f"{page.path}:{block.line}: {block.title} says something else"
                        )


def test_whole_resources_compile(subtests: pytest.Subtests, tmp_path: Path) -> None:
    for page in PAGES:
        with subtests.test(page.path):
            for block in page.blocks:
                if block.language != "yaml" or "…" in block.text:  # a sketch
                    continue
                whole = [
                    each for each in yaml.safe_load_all(block.text) if isinstance(each, dict) and "metadata" in each
                ]
                for number, document in enumerate(whole):
                    if document.get("kind") == "DisaggregatedInference" and "spec" in document:
                        file = tmp_path / f"{block.line}-{number}.yaml"
                        file.write_text(yaml.safe_dump(document))
                        done = CliRunner().invoke(covey, ["compile", "-f", str(file)])
                        assert done.exit_code == 0, f"{page.path}:{block.line}: {done.output}"


def test_what_is_not_run_is_right_as_far_as_can_be_seen(subtests: pytest.Subtests) -> None:
    for found in (skip for page in PAGES for skip in skipped(page)):
        with subtests.test(f"{found.page}:{found.block.line}"):
            page = next(page for page in PAGES if page.path == found.page)
            for command in script(found.block):
                check(command, page, f"{found.page}:{found.block.line}: {command}")


def test_commands_in_sentences_exist(subtests: pytest.Subtests) -> None:
    for page in PAGES:
        with subtests.test(page.path):
            for line, text in enumerate(page.prose.splitlines(), 1):
                for found in _INLINE.finditer(text):
                    check(found["text"].split("#")[0], page, f"{page.path}:{line}: {found['text']}", whole=False)


def check(command: str, page: Page, where: str, *, whole: bool = True) -> None:
    """What can be seen of a command without running it.

    Args:
        whole: it is a command as it would be typed, no mention of one.
    """
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        assert not whole, where
        return
    if words[0] == "make":
        targets = {each["name"] for each in _TARGET.finditer((ROOT / "Makefile").read_text())}
        wanted = [word for word in words[1:] if re.fullmatch(r"[a-z][a-z-]*", word)][:1]
        assert set(wanted) <= targets, where
    elif words[0] == "covey" or words[:2] == ["kubectl", "covey"]:
        check_options(words[1 if words[0] == "covey" else 2 :], where)
    if whole:
        check_files(words, page, where)
    if whole and words[0] == "helm":
        check_values(words, where)


def check_options(words: list[str], where: str) -> None:
    """The command exists, and has these options."""
    command: click.Command = covey
    context = click.Context(covey, info_name="covey")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name = words.pop(0)
        if _PLACEHOLDER.search(name):
            return
        below = command.get_command(context, name.split("|")[0])
        assert below is not None, f"{where}: there is no command {name}"
        command, context = below, click.Context(below, info_name=name, parent=context)
    known = {option for each in command.get_params(context) for option in (*each.opts, *each.secondary_opts)}
    for word in words:
        option = word.strip("[]…").split("=")[0]
        if option.startswith("-") and option != "-" and not _PLACEHOLDER.search(option[2:]):
            assert option in known, f"{where}: there is no option {option}"


def check_files(words: list[str], page: Page, where: str) -> None:
    """Files that are read exist: in the repository, or as a block of the page."""
    written = {block.title for block in page.blocks}
    for flag, value in pairwise(words):
        if flag in {"-f", "--filename", "--config", "--values", "-k"}:
            assert value == "-" or value in written or (ROOT / value).exists(), f"{where}: there is no file {value}"


def check_values(words: list[str], where: str) -> None:
    """Values that are set exist in the chart."""
    values = yaml.safe_load((ROOT / "helm" / "covey" / "values.yaml").read_text())
    if "helm/covey" not in words:
        return
    for flag, value in pairwise(words):
        if flag == "--set":
            found = values
            for key in value.partition("=")[0].split("."):
                assert key in found, f"{where}: the chart has no value {value}"
                found = found[key]


def test_the_check_finds_what_is_wrong() -> None:
    page = Page("page.md", (), (Block("yaml", "there.yaml", "", 1),), "")
    for right in ("make cluster", "covey plan -f there.yaml", "helm install covey helm/covey --set image.tag=dev"):
        check(right, page, right)
    for wrong in (
        "make nothing",
        "covey plan -f missing.yaml",
        "covey plan --no-such-option",
        "covey nothing",
        "helm install covey helm/covey --set image.nothing=dev",
    ):
        with pytest.raises(AssertionError):
            check(wrong, page, wrong)

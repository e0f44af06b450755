"""What is not run is listed at the end, by name and number."""

from collections import Counter
from collections.abc import Iterator

import pytest

from docs.commands import commands, skipped
from docs.world import Ground
from handbook.pages import pages, read


@pytest.fixture(scope="session")
def ground() -> Iterator[Ground]:
    """The control plane of a process, for its pages one after the other."""
    found = Ground()
    yield found
    found.end()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Every block that cannot be run here, with its reason."""
    found = [read(path) for path in pages()]
    left = [each for page in found for each in skipped(page)]
    count = sum(len(commands(page, block)) for page in found for block in page.blocks)
    kinds = ", ".join(f"{number} {kind}" for kind, number in sorted(Counter(each.kind for each in left).items()))
    terminalreporter.section(f"{count} commands are run; {len(left)} blocks are not: {kinds}")
    for each in left:
        terminalreporter.write_line(f"{each.page}:{each.block.line}: {each.kind}: {each.why}")

"""The machine that figures were taken on, and the memory of this process."""

import os
import platform
from pathlib import Path


def describe_machine() -> str:
    """Cores, processor, memory, kernel and Python."""
    facts = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = next((line.partition(":")[2].strip() for line in facts.splitlines() if line.startswith("model name")), "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores ({model or platform.processor()}), {memory:.0f} GiB, "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    )


def megabytes(kind: str = "VmRSS") -> float:
    """Memory of this process: resident now (``VmRSS``), or the most since `forget_peak` (``VmHWM``)."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields[kind].split()[0]) / 1024


def forget_peak() -> None:
    """Let the peak begin anew.

    The one of ``getrusage`` cannot: it is never less than what the process had that started this one.
    """
    Path("/proc/self/clear_refs").write_text("5")

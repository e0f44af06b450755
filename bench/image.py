"""How large the image is, how fast its processes start, and how much memory they hold at rest. Nothing is asserted.

``make bench-image``. The image is made as the Dockerfile says, without a container engine. A start is from the creation
of the process to the first 200 of ``/readyz``, on a cluster of 108 nodes, with leader election; each of them is confined
as in a pod. Memory is read from ``/proc`` after a rest: RSS counts shared pages whole, PSS by their share.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import confinement
import imaged
from bench.machine import describe_machine
from imaging import Image
from localcluster import Cluster, Nodes, Process
from localcluster.probe import answers

_MEGABYTE = 1e6


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7, help="starts of each (7)")
    parser.add_argument("--rest", type=float, default=30.0, help="seconds before memory is read (30)")
    options = parser.parse_args()
    print(f"{describe_machine()}; {confinement.describe()}")
    with imaged.built() as image:
        print_sizes(image)
        for arguments in (("--help",), ("plan", "--help"), ("version", "--client")):
            print_times(f"covey {' '.join(arguments)}", [_timed(image, arguments) for _ in range(options.runs)])
        with Cluster() as cluster, imaged.readable_directory() as mount:
            cluster.install_rbac()
            cluster.add_nodes(Nodes(blocks=3, racks=6, nodes=6))
            measure(cluster, image, mount, options)


def print_sizes(image: Image) -> None:
    """Megabytes (10⁶ bytes, uncompressed) by package."""
    parts = imaged.sizes(image)
    python = imaged.interpreter_size(image)
    for name, size in sorted(parts.items(), key=lambda part: -part[1]):
        if size >= 0.5 * _MEGABYTE:
            print(f"  {size / _MEGABYTE:6.1f} MB  {name}")
    added = sum(parts.values())
    print(f"  {added / _MEGABYTE:6.1f} MB  all that the image adds to its base")
    print(
        f"  {python / _MEGABYTE:6.1f} MB  Python of the base: interpreter and library without pip, tests and byte-code"
    )
    print(f"  {(added + python) / _MEGABYTE:6.1f} MB  Python and dependencies")


def measure(cluster: Cluster, image: Image, mount: Path, options: argparse.Namespace) -> None:
    """Starts of both processes one after the other, then the memory of both at rest beside each other."""
    processes = [
        imaged.process(cluster, image, each, mount, "--leader-elect=true") for each in ("operator", "scheduler")
    ]
    try:
        for process in processes:
            runs = [_ready_after(process) for _ in range(options.runs)]
            print_times(f"{process.name} to /readyz", [run[0] for run in runs])
            print_times(f"{process.name} to /readyz, processor time alone", [run[1] for run in runs])
        for process in processes:
            process.start()
        time.sleep(options.rest)
        for process in processes:
            print(f"{process.name} after {options.rest:g} s at rest: {memory(process.pid)}")
    finally:
        for process in processes:
            process.stop()


def memory(pid: int) -> str:
    """Of one process."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8").splitlines()[1:]
    found = {
        name: int(value.split()[0]) * 1024 / _MEGABYTE for name, _, value in (line.partition(":") for line in lines)
    }
    threads = len(list(Path(f"/proc/{pid}/task").iterdir()))
    return (
        f"RSS {found['Rss']:.1f} MB, PSS {found['Pss']:.1f} MB, {found['Anonymous']:.1f} MB its own, {threads} threads"
    )


def print_times(what: str, seconds: list[float]) -> None:
    """Least and median."""
    print(f"{what}: {min(seconds):.2f} s at least, {statistics.median(seconds):.2f} s median of {len(seconds)}")


def _timed(image: Image, arguments: tuple[str, ...]) -> float:
    return _seconds(lambda: subprocess.run(confinement.confined(image, *arguments), check=True, capture_output=True))


def _ready_after(process: Process) -> tuple[float, float]:
    """Seconds from the start of a process to its first good answer, and of processor time; it is stopped again."""

    def begin() -> None:
        process.start(wait=False)
        while process.alive and not answers(f"{process.health_url}/readyz"):
            time.sleep(0.005)
        process.wait_ready()

    seconds = _seconds(begin)
    used = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[11:13]
    process.stop()
    return seconds, sum(map(int, used)) / os.sysconf("SC_CLK_TCK")


def _seconds(work: Callable[[], object]) -> float:
    before = time.monotonic()
    work()
    return time.monotonic() - before


if __name__ == "__main__":
    main()

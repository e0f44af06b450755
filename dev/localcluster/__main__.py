"""``python -m localcluster``: a cluster to play with, until Ctrl-C or, with ``--detach``, until it is stopped."""

import argparse
import shlex
import signal
import sys
import time
from pathlib import Path
from typing import get_args

from localcluster import TROUBLES, Cluster, Nodes, cleanup, sentence_of
from localcluster.binaries import ensure_tool
from localcluster.nodes import Preset
from localcluster.programs import ROOT


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns its exit status."""
    options = _parser().parse_args(arguments)
    try:
        return _stop(options.directory) if options.command == "stop" else _run(options)
    except TROUBLES as error:
        print(f"error: {sentence_of(error)}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("localcluster", description="A real control plane with simulated GPU nodes.")
    parser.set_defaults(command="run")
    for name, default in (("blocks", 2), ("racks", 3), ("nodes", 6), ("gpus", 8)):
        parser.add_argument(f"--{name}", type=_count, default=default, metavar="N", help=f"default {default}")
    parser.add_argument("--preset", choices=get_args(Preset), default="kueue", help="whose topology labels; kueue")
    parser.add_argument("--with-covey", action="store_true", help="start Covey's processes and kube-scheduler too")
    parser.add_argument("--detach", action="store_true", help="leave it running and return")
    commands = parser.add_subparsers(title="commands")
    stop = commands.add_parser("stop", help="stop a cluster that was left running")
    stop.add_argument("directory", type=Path, help="its directory, as printed at its start")
    stop.set_defaults(command="stop")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than nothing")
    return number


def _run(options: argparse.Namespace) -> int:
    # The examples of engines ask for a network adapter.
    adapters = {"rdma/ib": "8"}
    nodes = Nodes(options.blocks, options.racks, options.nodes, options.gpus, options.preset, resources=adapters)
    started = time.monotonic()
    # SIGTERM ends this program as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        crds = (ROOT / "crds",) if options.with_covey else ()  # else they come with what the user installs
        with Cluster(crds=crds) as cluster:
            if options.with_covey:
                cluster.start_all(nodes)
            else:
                # What a user installs in it runs: its pods are placed, and Covey's own become processes.
                cluster.start_scheduler()
                cluster.run_pods()
                cluster.add_nodes(nodes)
            _introduce(cluster, nodes, time.monotonic() - started)
            if options.detach:
                cluster.detach()
                command = [sys.executable, "-m", "localcluster", "stop", str(cluster.directory)]
                print(f"Stop it with\n\n  PYTHONPATH={shlex.quote(str(ROOT / 'dev'))} {shlex.join(command)}")
            else:
                print("It runs until you press Ctrl-C.", flush=True)
                signal.pause()
    except KeyboardInterrupt:
        print("\nStopped.")
    return 0


def _introduce(cluster: Cluster, nodes: Nodes, seconds: float) -> None:
    programs = (Path(sys.executable).parent, ensure_tool("helm").parent, cluster.binary("kubectl").parent)
    print(
        f"A cluster of {len(nodes)} simulated nodes ({nodes.blocks} blocks x {nodes.racks} racks x {nodes.nodes} nodes, "
        f"{nodes.gpus} GPUs each) is working after {seconds:.1f} s.\n\n"
        f"  export KUBECONFIG={cluster.kubeconfig}\n"
        f"  export PATH={':'.join(map(str, programs))}:$PATH      # covey, helm and kubectl\n"
    )
    for process in cluster.processes.values():
        print(f"  {process.name:<24} pid {process.pid:<8} {process.log}")
    print()


def _stop(directory: Path) -> int:
    if not (directory / "run" / "etcd.pid").exists():
        print(f"error: no cluster runs in {directory}", file=sys.stderr)
        return 1
    cleanup.stop(directory.resolve())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

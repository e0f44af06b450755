"""Stand-ins for inference engines: they take the published arguments, find each other, and say who they are.

Nothing of the engines is here: ``python3 -m sglang.launch_server`` and ``ray`` are run as their documentation says, and
what answers is this. Pods are processes on addresses of their own (``127.0.0.x``); ``STAND_IN_HOSTS`` has the names that
the cluster's DNS would know, ``STAND_IN_IP`` one's own address, ``STAND_IN_HOME`` is a directory of the pod's own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from typing import Final

#: Seconds for which members wait for each other.
PATIENCE: Final = 60.0
#: Programs by the file that Python or the shell looks for them in.
_PROGRAMS: Final = {
    "sglang/__init__.py": "",
    "sglang/launch_server.py": "import stand_in\nstand_in.sglang()\n",
    "ray/__init__.py": "from stand_in import init, nodes\n",
    "ray/__main__.py": "import stand_in\nstand_in.ray()\n",
    "vllm/__init__.py": "",
    "vllm/entrypoints/__init__.py": "",
    "vllm/entrypoints/openai/__init__.py": "",
    "vllm/entrypoints/openai/api_server.py": "import stand_in\nstand_in.vllm()\n",
    "bin/ray": '#!/bin/sh\nexec python3 -m ray "$@"\n',
    # Takes the arguments that vLLM's script of this name takes.
    "bin/multi-node-serving.sh": textwrap.dedent("""\
        #!/bin/bash
        case "$1 $2" in
        "worker --ray_address="*)
            exec ray start --address="${2#*=}:6379" --block ;;
        "leader --ray_cluster_size="*)
            ray start --head --port=6379
            until [ "$(python3 -c 'import ray; ray.init(); print(len(ray.nodes()))')" -eq "${2#*=}" ]; do
                sleep 0.2
            done ;;
        *)
            echo "unknown arguments: $*" >&2
            exit 1 ;;
        esac
        """),
}


def install(directory: pathlib.Path, programs: Mapping[str, str] | None = None) -> None:
    """Write the programs, and others if there are, into a directory that Python and the shell look into first."""
    for name, text in {**_PROGRAMS, **(programs or {})}.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)


def sglang() -> None:
    """``--dist-init-addr host:port --nnodes n --node-rank k``: rank 0 listens there, the others join."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dist-init-addr", required=True)
    parser.add_argument("--nnodes", type=int, required=True)
    parser.add_argument("--node-rank", type=int, required=True)
    asked, _ = parser.parse_known_args()
    host, _, port = asked.dist_init_addr.partition(":")
    if asked.node_rank == 0:
        say(lead(resolved(host), int(port), asked.nnodes))
    else:
        say(join(host, int(port), asked.node_rank))


def lead(ip: str, port: int, size: int) -> dict[str, str]:
    """Wait until all have joined, and tell them who they are; only the leader itself can listen on its address."""
    members = {"0": own_name()}
    with socket.create_server((ip, port)) as server, contextlib.ExitStack() as stack:
        server.settimeout(PATIENCE)
        joined = []
        while len(members) < size:
            connection = stack.enter_context(server.accept()[0])
            rank, name = json.loads(read(connection))
            assert str(rank) not in members, f"rank {rank} has come twice"
            members[str(rank)] = name
            joined.append(connection)
        for connection in joined:
            write(connection, members)
    return members


def join(host: str, port: int, rank: int) -> dict[str, str]:
    """Join the leader of a group, as the member of this rank; returns the members by rank."""
    with connected(host, port) as connection:
        write(connection, [rank, own_name()])
        members: dict[str, str] = json.loads(read(connection))
    return members


def ray() -> None:
    """``start --head --port=…`` leaves a head behind; ``start --address=… --block`` joins it and stays.

    ``health-check --address=…`` fails where there is no head.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["start", "serve", "health-check"])
    parser.add_argument("--head", action="store_true")
    parser.add_argument("--port", type=int)
    parser.add_argument("--address", default="")
    parser.add_argument("--block", action="store_true")
    parser.add_argument("--node-ip-address")
    asked = parser.parse_args()
    if asked.action == "serve":
        serve_head(asked.port)
    elif asked.action == "health-check":
        ask(*asked.address.split(":"), "nodes")
    elif asked.head:
        (home() / "port").write_text(str(asked.port))
        subprocess.Popen([sys.executable, "-m", "ray", "serve", f"--port={asked.port}"], stdout=subprocess.DEVNULL)
    else:
        host, _, port = asked.address.partition(":")
        with connected(host, int(port)) as connection:
            write(connection, own_name())
            connection.settimeout(PATIENCE)
            members = json.loads(read(connection))
        say({str(number): name for number, name in enumerate(members)})


def serve_head(port: int) -> None:
    """The head of a cluster: it counts who has joined, until it is asked to end."""
    joined: dict[str, socket.socket] = {}
    with socket.create_server((os.environ["STAND_IN_IP"], port)) as server:
        server.settimeout(PATIENCE)
        while True:
            connection, _ = server.accept()
            asked = json.loads(read(connection))
            members = [own_name(), *joined]
            if asked not in {"nodes", "end"}:
                joined[asked] = connection
                continue
            write(connection, members)
            if asked == "end":
                for each in joined.values():
                    write(each, members)
                return


def init() -> None:
    """``ray.init``: there is nothing to do."""


def nodes(asked: str = "nodes") -> list[dict[str, object]]:
    """``ray.nodes``: the members of the cluster whose head runs in this pod."""
    members = ask(own_name(), (home() / "port").read_text(), asked)
    return [{"Alive": True, "NodeName": name} for name in members]


def ask(host: str, port: str, asked: str) -> list[str]:
    """The members of a cluster, as its head knows them."""
    with connected(host, int(port)) as connection:
        write(connection, asked)
        members: list[str] = json.loads(read(connection))
    return members


def vllm() -> None:
    """The server itself, in the leader: it sees the whole cluster."""
    say({str(number): str(node["NodeName"]) for number, node in enumerate(nodes("end"))})


def say(members: dict[str, str], **more: object) -> None:
    """The last line of the output: who this is, who is in its group, and what else there is to tell."""
    print(json.dumps({"name": own_name(), "members": members, **more}))


def own_name() -> str:
    """The host name of this pod."""
    return os.environ["HOSTNAME"]


def home() -> pathlib.Path:
    """A directory of the pod's own."""
    return pathlib.Path(os.environ["STAND_IN_HOME"])


def resolved(host: str) -> str:
    """The address behind a name, as the cluster's DNS would know it."""
    if host == own_name():
        return os.environ["STAND_IN_IP"]
    hosts: dict[str, str] = json.loads(pathlib.Path(os.environ["STAND_IN_HOSTS"]).read_text())
    return hosts[host]


@contextlib.contextmanager
def connected(host: str, port: int) -> Iterator[socket.socket]:
    """A connection, waited for as long as nobody listens."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            connection = socket.create_connection((resolved(host), port), timeout=PATIENCE)
        except ConnectionError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            break
    with connection:
        yield connection


def read(connection: socket.socket) -> str:
    """A line that the other side has written."""
    with connection.makefile() as stream:
        return stream.readline()


def write(connection: socket.socket, value: object) -> None:
    """Write a value as a line of JSON."""
    connection.sendall(f"{json.dumps(value)}\n".encode())

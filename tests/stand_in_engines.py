"""Stand-ins for the programs that ``examples/engines`` start, with the flags that their documentation has and no others.

Each finds its group by what it was told, as ``stand_in`` does, and says how large it takes the group to be.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import stand_in

_CALL: Final = '#!/bin/sh\nexec python3 -m stand_in_engines {} "$@"\n'
_NAMES: Final = ("vllm", "vllm-router", "mpirun", "ssh", "sshd", "trtllm-llmapi-launch", "trtllm-serve")
#: Programs beyond those of ``stand_in``, by their files.
PROGRAMS: Final[Mapping[str, str]] = {
    **{f"bin/{name}": _CALL.format(name) for name in _NAMES},
    "sglang/launch_server.py": "import stand_in_engines\nstand_in_engines.main('sglang')\n",
    "sglang_router/__init__.py": "",
    "sglang_router/launch_router.py": "import stand_in_engines\nstand_in_engines.main('sglang-router')\n",
}
_MEMBERS: Final = "STAND_IN_MEMBERS"


def main(program: str, arguments: Sequence[str] | None = None) -> None:
    """Run the stand-in of a program, by default with this process's own arguments."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    {
        "vllm": _vllm,
        "sglang": _sglang,
        "mpirun": _mpirun,
        "ssh": _ssh,
        "sshd": _sshd,
        "trtllm-llmapi-launch": _launch,
        "trtllm-serve": _trtllm_serve,
        "vllm-router": _vllm_router,
        "sglang-router": _sglang_router,
    }[program](given)


def _parsed(given: Sequence[str], positional: Sequence[str], flags: Mapping[str, Any]) -> argparse.Namespace:
    """Arguments by name; a flag's value is its type, or what ``add_argument`` takes."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for name in positional:
        parser.add_argument(name)
    for flag, kind in flags.items():
        parser.add_argument(flag, **(kind if isinstance(kind, Mapping) else {"type": kind}))
    return parser.parse_args(given)


_SWITCH: Final = {"action": "store_true"}


def _vllm(given: Sequence[str]) -> None:
    flags = {
        "--port": int,
        "--tensor-parallel-size": {"type": int, "default": 1},
        "--nnodes": {"type": int, "default": 1},
        "--node-rank": {"type": int, "default": 0},
        "--master-addr": str,
        "--master-port": {"type": int, "default": 29501},
        "--headless": _SWITCH,
        "--distributed-executor-backend": str,
        "--enable-expert-parallel": _SWITCH,
        "--data-parallel-size": int,
        "--data-parallel-size-local": int,
        "--data-parallel-start-rank": int,
        "--data-parallel-address": str,
        "--data-parallel-rpc-port": int,
        "--data-parallel-hybrid-lb": _SWITCH,
        "--kv-transfer-config": json.loads,
    }
    asked = _parsed(given, ("action", "model"), flags)
    assert asked.action == "serve"
    assert asked.kv_transfer_config["kv_connector"] == "NixlConnector"
    # Without it a decode elsewhere would be told to fetch the cache from itself.
    assert os.environ["VLLM_NIXL_SIDE_CHANNEL_HOST"] == os.environ["POD_IP"]
    if asked.data_parallel_size:
        assert not asked.headless, "with hybrid load balancing every pod serves"
        rank, rest = divmod(asked.data_parallel_start_rank, asked.data_parallel_size_local)
        assert not rest
        nodes = asked.data_parallel_size // asked.data_parallel_size_local
        gpus = asked.data_parallel_size * asked.tensor_parallel_size
        _meet(asked.data_parallel_address, asked.data_parallel_rpc_port, nodes, rank, gpus)
    elif asked.distributed_executor_backend == "ray":
        members = {str(number): str(node["NodeName"]) for number, node in enumerate(stand_in.nodes("end"))}
        stand_in.say(members, gpus=asked.tensor_parallel_size, rank=0)
    else:
        assert asked.headless == (asked.node_rank != 0), "only the leader serves"
        _meet(asked.master_addr, asked.master_port, asked.nnodes, asked.node_rank, asked.tensor_parallel_size)


def _sglang(given: Sequence[str]) -> None:
    flags = {
        "--model-path": str,
        "--trust-remote-code": _SWITCH,
        "--host": str,
        "--port": int,
        "--tp-size": int,
        "--dist-init-addr": str,
        "--nnodes": int,
        "--node-rank": int,
        "--disaggregation-mode": {"choices": ["prefill", "decode"]},
        "--disaggregation-bootstrap-port": int,
        "--disaggregation-transfer-backend": {"choices": ["mooncake", "nixl"]},
        "--disaggregation-ib-device": str,
    }
    asked = _parsed(given, (), flags)
    host, _, port = asked.dist_init_addr.partition(":")
    _meet(host, int(port), asked.nnodes, asked.node_rank, asked.tp_size, mode=asked.disaggregation_mode)


def _meet(host: str, port: int, nodes: int, rank: int, gpus: int, **more: object) -> None:
    is_leader = rank == 0
    members = stand_in.lead(stand_in.resolved(host), port, nodes) if is_leader else stand_in.join(host, port, rank)
    stand_in.say(members, gpus=gpus, rank=rank, leader=host, **more)


def _mpirun(given: Sequence[str]) -> None:
    """Every host but this one is asked over ssh who it is; then the command runs once, for all of them."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--allow-run-as-root", action="store_true")
    parser.add_argument("-np", type=int)
    parser.add_argument("-H", dest="hosts")
    parser.add_argument("--mca", nargs=2, action="append")
    parser.add_argument("-x", action="append")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args(given)
    slots = dict(each.split(":") for each in asked.hosts.split(","))
    assert sum(map(int, slots.values())) == asked.np
    port = int(shlex.split(dict(asked.mca)["plm_rsh_args"])[1])
    members, workers = {}, []
    for number, host in enumerate(slots):
        if stand_in.resolved(host) == os.environ["STAND_IN_IP"]:
            members[str(number)] = stand_in.own_name()
            continue
        connection = socket.create_connection((stand_in.resolved(host), port), timeout=stand_in.PATIENCE)
        workers.append(connection)
        stand_in.write(connection, "join")
        members[str(number)] = json.loads(stand_in.read(connection))
    subprocess.run(asked.command, env={**os.environ, _MEMBERS: json.dumps(members)}, check=True)
    for connection in workers:
        stand_in.write(connection, members)
        connection.close()


def _ssh(given: Sequence[str]) -> None:
    asked = _parsed(given, ("host", "command"), {"-p": int, "-i": str, "-o": {"action": "append"}})
    with stand_in.connected(asked.host, asked.p) as connection:
        stand_in.write(connection, asked.command)


def _sshd(given: Sequence[str]) -> None:
    asked = _parsed(given, (), {"-D": _SWITCH, "-e": _SWITCH, "-p": int, "-o": {"action": "append"}})
    with socket.create_server((os.environ["STAND_IN_IP"], asked.p)) as server:
        server.settimeout(stand_in.PATIENCE)
        while True:
            connection, _ = server.accept()
            with connection:
                if json.loads(stand_in.read(connection)) == "join":
                    stand_in.write(connection, stand_in.own_name())
                    connection.settimeout(stand_in.PATIENCE)
                    stand_in.say(json.loads(stand_in.read(connection)))
                    return


def _launch(given: Sequence[str]) -> None:
    subprocess.run(given, check=True)


def _trtllm_serve(given: Sequence[str]) -> None:
    if given[0] == "disaggregated":
        stand_in.say({}, config=_parsed(given[1:], (), {"-c": str}).c)
        return
    flags = {"--host": str, "--port": int, "--tp_size": int, "--extra_llm_api_options": str}
    asked = _parsed(given, ("model",), flags)
    members = json.loads(os.environ[_MEMBERS])
    stand_in.say(members, gpus=asked.tp_size, rank=0, config=asked.extra_llm_api_options)


def _vllm_router(given: Sequence[str]) -> None:
    several = {"action": "append"}
    flags = {
        "--vllm-pd-disaggregation": _SWITCH,
        "--policy": str,
        "--host": str,
        "--port": int,
        "--prefill": several,
        "--decode": several,
    }
    asked = _parsed(given, (), flags)
    stand_in.say({}, prefill=asked.prefill, decode=asked.decode)


def _sglang_router(given: Sequence[str]) -> None:
    flags = {
        "--pd-disaggregation": _SWITCH,
        "--host": str,
        "--port": int,
        "--service-discovery": _SWITCH,
        "--service-discovery-namespace": str,
        "--service-discovery-port": int,
        "--prefill-selector": {"nargs": "+"},
        "--decode-selector": {"nargs": "+"},
    }
    asked = _parsed(given, (), flags)
    stand_in.say(
        {},
        namespace=asked.service_discovery_namespace,
        prefill=asked.prefill_selector,
        decode=asked.decode_selector,
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

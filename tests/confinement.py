"""Programs run as the image runs them: as user 65532, on a read-only root, with no network but loopback.

Linux does this with namespaces, which root may make and, on most machines, everybody (``unshare --map-root-user``).
Who is not root cannot become user 65532, and stays the person that runs the tests, with no capability; where no
namespace may be made at all, the tree's modes alone keep it from being written. ``describe`` says which it was.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache

from imaging import Image

USER = 65532
_UNSHARE = ("unshare",) if os.geteuid() == 0 else ("unshare", "--map-root-user")
#: Makes the root read-only for this mount namespace, whatever lies on it, then becomes the command.
_READ_ONLY = ("sh", "-c", 'mount -o remount,bind,ro / && exec "$@"', "sh")
_LOOPBACK = ("sh", "-c", 'ip link set lo up && exec "$@"', "sh")


@cache
def _permitted(*kinds: str) -> bool:
    done = subprocess.run([*_UNSHARE, *kinds, "true"], capture_output=True, check=False)
    return done.returncode == 0


def is_namespaced() -> bool:
    """Whether this machine lets us make namespaces for mounts and the network."""
    return _permitted("--mount", "--net")


def describe() -> str:
    """How programs are confined here, in a line."""
    user = f"user {USER}" if os.geteuid() == 0 else f"user {os.getuid()} without capabilities, for want of root"
    return f"{user}, " + ("read-only root" if is_namespaced() else "read-only by modes alone: unshare is not permitted")


def without_network(command: Sequence[str]) -> list[str]:
    """The command with loopback as its only network, where this machine permits it."""
    return [*_UNSHARE, "--net", *_LOOPBACK, *command] if is_namespaced() else list(command)


def confined(image: Image, *arguments: str) -> list[str]:
    """The image's entry point with arguments, as an unprivileged user on a read-only root, with its environment."""
    *entrypoint, last = image.entrypoint
    variables = [f"{name}={value}" for name, value in image.variables.items()]
    inner = ["env", "-i", *variables, *entrypoint, last, *arguments]
    if os.geteuid() == 0:
        inner = [*_dropped(f"--reuid={USER}", f"--regid={USER}", "--clear-groups"), *inner]
    elif is_namespaced():
        inner = [*_dropped(), *inner]
    return [*_UNSHARE, "--mount", *_READ_ONLY, *inner] if is_namespaced() else inner


def _dropped(*user: str) -> list[str]:
    return ["setpriv", *user, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]


def run(image: Image, *arguments: str, variables: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command of the image to its end, without any network."""
    assert not variables or set(variables).isdisjoint(image.environment)
    changed = Image(image.root, image.environment | dict(variables or {}), entrypoint=image.entrypoint)
    command = without_network(confined(changed, *arguments))
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, cwd="/")


def status(pid: int) -> dict[str, str]:
    """What the kernel says of a process: ``/proc/PID/status``, its root's mount options, its network interfaces."""
    lines = _read(pid, "status").splitlines()
    found = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    root = [line.split()[3] for line in _read(pid, "mounts").splitlines() if line.split()[1] == "/"]
    interfaces = [line.partition(":")[0].strip() for line in _read(pid, "net/dev").splitlines() if ":" in line]
    return found | {"root": root[-1], "interfaces": " ".join(each for each in interfaces if each)}


def _read(pid: int, name: str) -> str:
    with open(f"/proc/{pid}/{name}", encoding="utf-8") as file:  # noqa: PTH123 - no file of the tree
        return file.read()


if sys.platform != "linux":
    raise ImportError("the image is Linux's; its tests need namespaces or at least /proc")

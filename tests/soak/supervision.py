"""The processes of a soak: what ends or stands still, who starts it again, and what may not have ended."""

from __future__ import annotations

import builtins
import contextlib
import re
import threading
from collections import Counter
from collections.abc import Callable
from typing import Final

from kubernetes.client import ApiException

from localcluster import Cluster, Process, ProcessError
from soak.quiet import Quiet

#: What may be killed, and the name of its process.
OPERATOR, SCHEDULER = "covey-operator", "covey-scheduler"
KILLABLE: Final = (
    OPERATOR,
    SCHEDULER,
    "kube-scheduler",
    "default-scheduler",
    "kube-controller-manager",
    "kube-apiserver",
    "etcd",
    # Plays the kubelets.
    "kwok",
)
#: Events are not seen, or seen late, while one of these is down.
SEEN_THROUGH: Final = frozenset(KILLABLE) - {"default-scheduler", "kwok"}
#: In the log of a process that ends because of an error of its own, and of one that has lost its lease.
_CRASHED: Final = "a part of the process has failed"
_LEASE_LOST: Final = "lease lost"
_TAIL: Final = 100
_ERROR: Final = re.compile(r'"exc_type": ?"(?P<kind>\w+)", ?"exc_value": ?"(?P<words>(?:[^"\\]|\\.){0,200})')


def faults_in(log: str) -> Counter[str]:
    """Errors in a log of Covey's that are a fault of the program, and how often each is: no answer of anybody's, no network."""
    found = (_ERROR.search(line) for line in log.splitlines())
    return Counter(f"{each['kind']}: {each['words']}" for each in found if each and _is_fault(each["kind"]))


def _is_fault(kind: str) -> bool:
    error = getattr(builtins, kind, None)
    return isinstance(error, type) and issubclass(error, Exception) and not issubclass(error, OSError | ExceptionGroup)


class Supervision:
    """Ends processes, starts them again, and notes those that end by themselves.

    Args:
        cluster: Has the processes.
        quiet: Stands still while one is away that events are seen through.
        say: Prints a line.
    """

    def __init__(self, cluster: Cluster, quiet: Quiet, say: Callable[[str], object]) -> None:
        self.cluster = cluster
        self.quiet = quiet
        self.say = say
        self.down: set[str] = set()
        #: How often a program of others had to be started anew, by its name.
        self.nudged: Counter[str] = Counter()
        #: How often a process has ended by itself.
        self.ended: Counter[str] = Counter()
        #: What was found amiss, beside what the checker finds.
        self.problems: list[str] = []
        #: Bytes of each log that were read.
        self._read: dict[str, int] = {}
        #: Processes that a timer will start or resume.
        self._planned: set[str] = set()

    def process(self, name: str) -> Process:
        """A running process."""
        return self.cluster.processes[name]

    def kill(self, name: str, seconds: float) -> None:
        """Kill a process at once and start it again after some seconds."""
        self._hide(name)
        self.process(name).kill()
        self._start_after(name, seconds)

    def nudge(self, name: str, why: str) -> None:
        """Start a program of others anew, which does not do what only it can do."""
        self.say(f"nudge: {name} is started anew: {why}")
        self.nudged[name] += 1
        self.kill(name, 0.0)

    def pause(self, name: str, seconds: float) -> None:
        """Let a process stand still."""
        self._hide(name)
        process = self.process(name)
        # One that has ended by itself since it was looked after is started when it would have been resumed.
        with contextlib.suppress(ProcessError, OSError):
            process.pause()
        self._planned.add(name)

        def resume() -> None:
            with contextlib.suppress(ProcessError, OSError):
                process.resume()
            self._planned.discard(name)

        self._after(seconds, resume)

    def _hide(self, name: str) -> None:
        if name in SEEN_THROUGH:
            self.quiet.disturb(name)
        self.down.add(name)

    def _start_after(self, name: str, seconds: float) -> None:
        """Start a process again, also while this program waits for an answer that only it makes possible."""
        self._planned.add(name)

        def start() -> None:
            process = self.process(name)
            if not process.alive:
                # kwok takes its leases away first, which an API server that comes up may refuse: it is tried again.
                with contextlib.suppress(ApiException, ProcessError):
                    process.start(wait=False)
            self._planned.discard(name)

        self._after(seconds, start)

    @staticmethod
    def _after(seconds: float, do: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, do)
        timer.daemon = True
        timer.start()

    def look_after(self) -> None:
        """Start what has ended by itself (a lost lease ends a process), and see what works again."""
        for name in KILLABLE:
            process = self.process(name)
            if name in self._planned:
                continue
            if not process.alive:
                self._note_end(name, process)
                self._hide(name)
                self._start_after(name, 0.5)
            elif name in self.down and process.ready:
                self.down.discard(name)
                self.quiet.settle(name)

    def read_logs(self) -> None:
        """Note what Covey's processes have logged since the last time that they may not."""
        for name in (OPERATOR, SCHEDULER):
            log = self.process(name).log
            with log.open("rb") as file:
                file.seek(self._read.get(name, 0))
                text = file.read()
                self._read[name] = file.tell()
            faults = faults_in(text.decode(errors="replace"))
            self.problems += (f"{name} has logged, {count} times: {fault}" for fault, count in faults.items())

    def _note_end(self, name: str, process: Process) -> None:
        """A lost lease and an API server that is away end a process of Covey's in order; nothing else may."""
        said = process.log_text().splitlines()[-_TAIL:] if name in {OPERATOR, SCHEDULER} else []
        self.ended[name] += 1
        if any(_CRASHED in line for line in said) and not any(_LEASE_LOST in line for line in said):
            self.problems.append(f"{name} has ended by itself: {' | '.join(said[-3:])}")

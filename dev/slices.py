"""Run a program, and all that it starts, with time slices of 10 ms: ``python3 dev/slices.py .ci/run``.

Where many processes want two processors, Linux' own slices of some 3 ms have them find the caches full of another's data each
time: of six that run the same unit tests side by side each takes 15.4 s of processor time, with these 14.5 s, and two take 12.7 s.
Kernels before 6.12 have one length for all, and this changes nothing there.
"""

import ctypes
import os
import struct
import sys

_NANOSECONDS = 10_000_000
#: ``sched_setattr(2)``, by machine.
_NUMBERS = {"x86_64": 314, "aarch64": 274}
#: ``struct sched_attr``: size, policy, flags, nice, priority, runtime, deadline, period.
_ATTRIBUTES = "=IIQiIQQQ"

if __name__ == "__main__":
    if number := _NUMBERS.get(os.uname().machine):
        size, nice = struct.calcsize(_ATTRIBUTES), os.getpriority(os.PRIO_PROCESS, 0)
        attributes = struct.pack(_ATTRIBUTES, size, os.SCHED_OTHER, 0, nice, 0, _NANOSECONDS, 0, 0)
        ctypes.CDLL(None).syscall(number, 0, attributes, 0)
    os.execvp(sys.argv[1], sys.argv[1:])

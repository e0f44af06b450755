"""What may keep a cluster from working, for programs that say it in one sentence instead of a traceback."""

import subprocess

from localcluster.binaries import BuildError
from localcluster.client import ApiError
from localcluster.process import ProcessError
from localcluster.waiting import NotReachedError

#: To be caught around everything; each has a message for a person.
TROUBLES = (ApiError, BuildError, NotReachedError, ProcessError, RuntimeError, OSError, subprocess.SubprocessError)

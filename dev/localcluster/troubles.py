"""What may keep a cluster from working, for programs that say it in one sentence instead of a traceback."""

import subprocess

from kubernetes.client import ApiException
from urllib3.exceptions import HTTPError

from localcluster.binaries import BuildError
from localcluster.process import ProcessError
from localcluster.waiting import NotReachedError

#: To be caught around everything; ``sentence_of`` has their message for a person.
TROUBLES = (
    ApiException,
    BuildError,
    HTTPError,
    NotReachedError,
    ProcessError,
    RuntimeError,
    OSError,
    subprocess.SubprocessError,
)

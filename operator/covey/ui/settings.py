"""Settings of ``covey ui``."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from covey.kube.settings import Address, LogFormat, LogLevel, Metavar, Namespaces, ProcessSettings


class PageSettings(ProcessSettings):
    """What the page's process is told when it starts."""

    #: Of its own: the chart gives all pods the same variables.
    prefix: ClassVar[str] = "COVEY_UI_"

    namespaces: Namespaces = ()
    """Namespaces to look at where the page does not say. Without: all, if that is allowed."""
    bind_address: Address = "127.0.0.1:0"
    """Where the page is served; port 0 takes a free one."""
    open: bool = False
    """Open the link in a browser; it is printed in any case."""
    sign_in: bool = False
    """Serve whoever brings a token for the API server, with that token alone; of the kubeconfig only the address counts."""
    memory: Annotated[int, Metavar("MIB")] | None = Field(None, ge=1)
    """What the process may take, in MiB: less than the container's limit. A view that is larger is refused; raise both where
    thousands of pods are looked at. Without: as much as there is."""
    log_level: LogLevel = "warning"
    """What is logged, from this level on."""
    log_format: LogFormat = "console"
    """The form of what is logged."""

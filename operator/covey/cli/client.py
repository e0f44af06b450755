"""A client for a command, and what goes wrong with it in words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from covey import __version__
from covey.cli.errors import CommandError
from covey.kube.client import Client
from covey.kube.errors import ApiError, ConfigurationError, Forbidden, KubeError, Unauthorized, Unreachable


@asynccontextmanager
async def connect(kubeconfig: str | None, context: str | None, connections: int = 8) -> AsyncIterator[Client]:
    """A client of the chosen context, with so many connections at the most, closed at the end.

    Raises:
        CommandError: in place of everything that the client raises.
    """
    try:
        agent = f"covey-cli/{__version__}"
        async with Client.from_kubeconfig(kubeconfig, context, user_agent=agent, connections=connections) as client:
            yield client
    except KubeError as error:
        raise CommandError(in_words(error)) from None


def in_words(error: KubeError) -> str:
    """Describe what went wrong, and what to do."""
    match error:
        case ConfigurationError() if "serviceaccount" in str(error):
            return "no kubeconfig was found; set KUBECONFIG or give --kubeconfig"
        case ConfigurationError():
            return f"no usable cluster: {error}; check --kubeconfig and --context"
        case Unreachable():
            return f"the API server does not answer: {error}; is the context the right one?"
        case Unauthorized() | Forbidden():
            return f"not allowed: {error.message}; ask for the rights, or use another context"
        case ApiError():
            return f"the API server refused: {error.message or error}; try again, or ask who runs it"
        case _:
            return f"the API server's answer is not understood: {error}; does the context name an API server?"

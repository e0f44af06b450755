"""Sign-in: the credentials that a request brings, and those that the API server is asked with."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from typing import Protocol

from covey.kube.connection import Connection, bearer
from covey.ui.contract import SignInMode
from covey.ui.viewers import Credentials, identity_of


class NotSignedIn(Exception):  # noqa: N818 - named for what happened
    """The request brings nothing that opens; the text is for the viewer."""


class CodeUsed(NotSignedIn):
    """The code has been used."""


class Authenticator(Protocol):
    """Turns what a request brings into credentials."""

    @property
    def mode(self) -> SignInMode:
        """The way in for viewers."""

    def credentials(self, token: str | None) -> Credentials:
        """Identity as which the API server is asked.

        Args:
            token: of the Authorization header.

        Raises:
            Closed: there is none, or it is not good.
        """

    def redeem(self, code: str) -> str:
        """A token for the code of a link.

        Raises:
            Closed: there are no codes here, or this is none.
            UsedUp: it has been used.
        """


class TokenAuthenticator:
    """The operator's gate: the viewer's own token goes to the API server, and nothing else does.

    Args:
        server: the API server, without anybody's identity.
    """

    mode = SignInMode.TOKEN

    def __init__(self, server: Connection) -> None:
        self._server = server

    def credentials(self, token: str | None) -> Credentials:
        """The viewer's; whether they are good only the API server knows."""
        if not token:
            raise NotSignedIn("a token for the API server is needed")
        return Credentials(identity_of(token), bearer(self._server, token))

    def redeem(self, code: str) -> str:  # noqa: ARG002 - there are no codes
        """Hand out nothing: there are no codes."""
        raise NotSignedIn("there are no links here; a token for the API server is needed")


class LinkAuthenticator:
    """The command's gate: everything is read with its kubeconfig, by whoever has the link that it printed.

    The link's code is good once, since it may be seen in a list of processes or in a browser's history; for it the page
    gets a token that never leaves it. A new code is made when one is used.

    Args:
        connection: of the kubeconfig.
        announce: called with each new code.
    """

    mode = SignInMode.KUBECONFIG

    def __init__(self, connection: Connection, announce: Callable[[str], None]) -> None:
        self._connection = connection
        self._announce = announce
        self._tokens: list[str] = []
        self._used: set[str] = set()
        self._code = ""

    def open(self) -> str:
        """Make a code and announce it."""
        self._code = secrets.token_urlsafe(32)
        self._announce(self._code)
        return self._code

    def credentials(self, token: str | None) -> Credentials:
        """The kubeconfig's, for a token that was handed out."""
        if not token or not any(_same(token, accepted) for accepted in self._tokens):
            raise NotSignedIn("open the link that covey ui has printed")
        return Credentials("", self._connection)

    def redeem(self, code: str) -> str:
        """A token; the code is spent."""
        if code in self._used:
            raise CodeUsed("this link has been used; covey ui has printed a new one")
        if not self._code or not _same(code, self._code):
            raise NotSignedIn("this link is not of this covey ui; open the one that it has printed")
        self._used.add(code)
        token = secrets.token_urlsafe(32)
        self._tokens.append(token)
        self.open()
        return token


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())

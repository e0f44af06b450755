"""Everything that can go wrong between Covey and the API server.

::

    Exception
    ├── KubeError                   base of all that the client raises
    │   ├── ConfigurationError      no usable kubeconfig, token or certificate
    │   ├── Unreachable             no answer: connection, TLS, time-out, a stream cut short
    │   ├── Undecodable             an answer that is not what was asked for
    │   └── ApiError                the API server answered with a Status
    │       ├── BadRequest          400, also what a strict dry run says of unknown fields
    │       ├── Unauthorized        401
    │       ├── Forbidden           403, also quota and admission policies
    │       ├── NotFound            404
    │       ├── AlreadyExists       409 on create
    │       ├── Conflict            409 resourceVersion, uid precondition, field manager, pod already bound
    │       ├── Gone                410 a resourceVersion or continue token that has been compacted
    │       ├── Invalid             422 validation, and every failed test of a JSON patch
    │       └── TooManyRequests     429, after the client's own attempts
    ├── LeaseLost                   somebody else leads, or may lead
    ├── InstalledTwice              another installation of Covey leads in this cluster
    └── Retryable                   Covey's own: try again after a delay
"""

# ruff: noqa: N818 - named for what happened, as the API's own reasons are

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec


class KubeError(Exception):
    """Base of all that the client raises."""


class ConfigurationError(KubeError):
    """No usable kubeconfig, service account, token or certificate."""


class Unreachable(KubeError):
    """No answer: connection, TLS, time-out, or a stream cut short. A write may or may not have happened."""


class Undecodable(KubeError):
    """An answer that is not what was asked for: not JSON, too deep, or not of the requested type.

    ``key`` is the namespace and name of the object that cannot be read, where that much is known.
    """

    def __init__(self, message: str, key: tuple[str, str] = ("", "")) -> None:
        super().__init__(message)
        self.key = key


class ApiError(KubeError):
    """The API server answered with a ``metav1.Status``.

    ``code`` is the HTTP status, ``reason`` and ``details`` are the Status's own (``details`` may be empty),
    ``retry_after`` is in seconds when the server gave a time.
    """

    #: The code a subclass stands for.
    status: ClassVar[int] = 0

    def __init__(
        self,
        code: int,
        reason: str = "",
        message: str = "",
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(f"{code} {reason}: {message}" if reason else f"{code}: {message}")
        self.code = code
        self.reason = reason
        self.message = message
        self.details: dict[str, Any] = dict(details or {})
        self.retry_after = retry_after


class BadRequest(ApiError):
    """400: a body that cannot be read, or, under strict validation, has unknown or duplicate fields."""

    status = 400


class Unauthorized(ApiError):
    """401: the credentials were refused, freshly read ones too."""

    status = 401


class Forbidden(ApiError):
    """403: access rules, quota, an admission policy, or a namespace that is going away."""

    status = 403


class NotFound(ApiError):
    """404: no such object, or no such resource."""

    status = 404


class AlreadyExists(ApiError):
    """409 with reason AlreadyExists: the name is taken."""

    status = 409


class Conflict(ApiError):
    """409 otherwise: resourceVersion or uid precondition, another field manager, a pod that is bound already.

    Also 422 where a patch gives the UID of another incarnation.
    """

    status = 409


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old."""

    status = 410


class Invalid(ApiError):
    """422: validation failed, or a test of a JSON patch did."""

    status = 422


class TooManyRequests(ApiError):
    """429: the server sheds load, or a disruption budget forbids an eviction."""

    status = 429


_BY_CODE: dict[int, type[ApiError]] = {
    kind.status: kind
    for kind in (BadRequest, Unauthorized, Forbidden, NotFound, Conflict, Gone, Invalid, TooManyRequests)
}


class Status(msgspec.Struct, rename="camel", frozen=True):
    """``metav1.Status``, as far as it is read."""

    code: int = 0
    reason: str = ""
    message: str = ""
    details: dict[str, Any] | None = None


_STATUS = msgspec.json.Decoder(Status)


def api_error(code: int, body: bytes, retry_after: float | None = None) -> ApiError:
    """The error that an answer stands for; a body that is no Status (a proxy's page) becomes the message.

    Args:
        code: the HTTP status; 0 takes the Status's own (an ERROR event of a watch has no other).
        body: the answer.
        retry_after: seconds, from the header; the Status's ``retryAfterSeconds`` otherwise.
    """
    try:
        status = _STATUS.decode(body)
    except msgspec.MsgspecError:
        status = Status(message=body[:200].decode(errors="replace"))
    code = code or status.code or 500
    if retry_after is None and status.details:
        seconds = status.details.get("retryAfterSeconds")
        retry_after = float(seconds) if isinstance(seconds, int | float) else None
    kind = AlreadyExists if status.reason == "AlreadyExists" else _BY_CODE.get(code, ApiError)
    if kind is Invalid and _is_of_another_uid(status):
        kind = Conflict
    return kind(code, status.reason, status.message, status.details, retry_after)


def _is_of_another_uid(status: Status) -> bool:
    """Tell whether a patch named the UID of another incarnation, which is refused as a change of a fixed field.

    The rule is ``ValidateObjectMetaAccessorUpdate`` of apimachinery. A custom resource's status is written all the
    same.
    """
    causes = (status.details or {}).get("causes") or ()
    return any(isinstance(cause, dict) and cause.get("field") == "metadata.uid" for cause in causes)


class LeaseLost(Exception):
    """Somebody else holds the lease, or may by now: a process that raises this must stop acting at once."""


class InstalledTwice(Exception):
    """Another installation of Covey has a lease in this cluster: a process that raises this must not start."""


class Retryable(Exception):
    """Try again after ``delay`` seconds."""

    def __init__(self, delay: float, message: str = "") -> None:
        super().__init__(message or f"again in {delay:g} s")
        self.delay = delay

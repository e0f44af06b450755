"""Requests to a cluster's API server with ``kubernetes.client``: by path, with plain dictionaries."""

import json
from pathlib import Path
from typing import Any, Final

from kubernetes.client import ApiClient, ApiException, Configuration
from kubernetes.client.rest import RESTResponse
from kubernetes.config import load_kube_config

#: Seconds until a request is given up.
TIMEOUT: Final = 30.0
#: Connections that are kept: as many as threads make requests at the same time, and some watches.
_CONNECTIONS: Final = 32
#: Python's word, in several sentences, for a TLS connection that ended before all was sent.
_CLOSED: Final = "EOF"
_AUTHENTICATION: Final = ("BearerToken",)
_PATCHES: Final = {
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    # JSON is YAML.
    "apply": "application/apply-patch+yaml",
}


def connect(kubeconfig: Path) -> ApiClient:
    """Make a client as a kubeconfig file says, a context manager, to be used from as many threads as wanted."""
    configuration = Configuration(
        # Nothing here stands behind a proxy, whatever the environment says.
        proxy="",
        # A test sees every failure, and each is one exception instead of a MaxRetryError.
        retries=False,
        connection_pool_maxsize=_CONNECTIONS,
    )
    load_kube_config(str(kubeconfig), client_configuration=configuration, persist_config=False)
    return ApiClient(configuration)


def request(
    client: ApiClient, method: str, path: str, body: Any = None, *, patch: str | None = None, timeout: float = TIMEOUT
) -> Any:
    """Make a request and return the decoded answer.

    Args:
        client: Makes it.
        method: HTTP method.
        path: Path and query, from ``/api`` on.
        body: What to send as JSON; nothing is sent for None.
        patch: Kind of a PATCH: ``json``, ``merge``, ``strategic`` or ``apply``. Without one a list is sent
            as a JSON patch and an object as a merge patch.
        timeout: Seconds until it is given up.

    Raises:
        ApiException: when the server refuses; with status 0 when TLS fails.
        urllib3.exceptions.HTTPError: when it does not answer.
    """
    response = exchange(client, method, path, body, patch=patch, timeout=timeout)
    response.read()
    return client.response_deserialize(response, {"2XX": "object"}).data


def exchange(
    client: ApiClient,
    method: str,
    path: str,
    body: Any = None,
    *,
    patch: str | None = None,
    timeout: float | tuple[float, float] = TIMEOUT,
) -> RESTResponse:
    """Make a request and return the answer before its content is read, or raise as ``request`` does.

    It is made once more where the server closed the connection before TLS had begun or all was sent.

    Args:
        client: As for ``request``, and so are the others.
        method: HTTP method.
        path: Path and query.
        body: What to send.
        patch: Kind of a PATCH.
        timeout: Seconds until it is given up, or until there is a connection and until more of the answer comes.
    """
    headers = {"Accept": "application/json"}
    if body is not None:
        headers["Content-Type"] = _content_type(method, body, patch)
    prepared = client.param_serialize(method, path, header_params=headers, body=body, auth_settings=_AUTHENTICATION)
    try:
        response = client.call_api(*prepared, _request_timeout=timeout)
    except ApiException as error:
        # The server closes a connection that nobody used for a while, and may do so at the very moment.
        if error.status or _CLOSED not in str(error.reason):
            raise
        response = client.call_api(*prepared, _request_timeout=timeout)
    if response.status >= 300:
        response.read()
        client.response_deserialize(response, {})
    return response


def status_of(error: ApiException) -> dict[str, Any]:
    """The ``Status`` object of a refusal; it has at least a ``reason`` (such as ``Invalid``) and a ``message``."""
    try:
        found = json.loads(error.body or "")
    except ValueError:
        found = None
    status = found if isinstance(found, dict) else {}
    return {"reason": error.reason or "", "message": error.body or error.reason or ""} | status


def sentence_of(error: BaseException) -> str:
    """The message of an error, for a person; ``str`` of a refusal has all of its headers."""
    return f"{error.status} {status_of(error)['message']}" if isinstance(error, ApiException) else str(error)


def _content_type(method: str, body: Any, patch: str | None) -> str:
    if method != "PATCH":
        return "application/json"
    return _PATCHES[patch or ("json" if isinstance(body, list) else "merge")]

"""A control plane's storage, which can go back to what it held: a new control plane costs many times as much."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import urllib3

from localcluster import eventually

#: Everything that kube-apiserver keeps.
_BEGIN, _END = b"/registry/", b"/registry0"
#: Renewed every few seconds by those who hold them.
_LEASES: Final = b"/registry/leases/"
#: etcd takes up to 128 in a transaction.
_OPERATIONS: Final = 100
#: Seconds without a change after which controllers have nothing left to write; those that have just begun pause longer.
_QUIET: Final = 1.0
_FIRST_QUIET: Final = 5.0


class Storage:
    """What etcd holds of a control plane that has just settled.

    Args:
        etcd: address of etcd, which answers JSON too.
    """

    def __init__(self, etcd: str) -> None:
        self._etcd = etcd
        self._http = urllib3.PoolManager()
        self._kept: Mapping[bytes, bytes] = {}
        _until_quiet(self._keep, "a new control plane settles", _FIRST_QUIET)

    def restore(self) -> None:
        """Delete what has come since and bring back what has changed, until no controller writes any more."""
        _until_quiet(self._restore, "the storage is what it was")

    def _keep(self) -> bool:
        before, self._kept = self._kept, self._read()
        return any(True for _ in _changes(self._kept, before))

    def _restore(self) -> bool:
        changes = list(_changes(self._read(), self._kept))
        for start in range(0, len(changes), _OPERATIONS):
            self._ask("txn", {"success": changes[start : start + _OPERATIONS]})
        return bool(changes)

    def _read(self) -> dict[bytes, bytes]:
        found = self._ask("range", {"key": _text(_BEGIN), "range_end": _text(_END)})
        pairs = ((base64.b64decode(each["key"]), base64.b64decode(each.get("value", ""))) for each in found["kvs"])
        return dict(pairs)

    def _ask(self, method: str, body: Mapping[str, Any]) -> Any:
        answer = self._http.request("POST", f"{self._etcd}/v3/kv/{method}", body=json.dumps(body), timeout=30)
        assert answer.status == 200, answer.data
        return json.loads(answer.data)


def _changes(found: Mapping[bytes, bytes], wanted: Mapping[bytes, bytes]) -> Iterator[dict[str, Any]]:
    """The operations of etcd that make what is found what is wanted; leases that are still held stay as they are."""
    for key in found.keys() - wanted.keys():
        yield {"requestDeleteRange": {"key": _text(key)}}
    for key, value in wanted.items():
        if found.get(key) != value and not (key in found and key.startswith(_LEASES)):
            yield {"requestPut": {"key": _text(key), "value": _text(value)}}


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _until_quiet(change: Callable[[], bool], describe: str, seconds: float = _QUIET) -> None:
    last = time.monotonic()

    def quiet() -> bool:
        nonlocal last
        if change():
            last = time.monotonic()
        return time.monotonic() - last >= seconds

    eventually(quiet, describe=describe)

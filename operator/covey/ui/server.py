"""The HTTP application of the UI: routes, and what goes wrong, in the words of :mod:`covey.ui.contract`."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import msgspec
from aiohttp import web

from covey.api import reasons
from covey.kube.errors import ApiError, Forbidden, KubeError, NotFound, Unauthorized
from covey.manifests.errors import InputError
from covey.observability.logging import get_logger
from covey.ui import contract
from covey.ui.assets import INDEX, Asset, load_assets
from covey.ui.auth import Authenticator, CodeUsed, NotSignedIn
from covey.ui.event_sender import Sender
from covey.ui.event_stream import Ended, EventStream, Expired, ViewerFeed
from covey.ui.facts import read_facts
from covey.ui.headers import SECURITY, bearer_token, is_meant, is_strange
from covey.ui.history import read_story
from covey.ui.limits import DEFAULT, PageLimits
from covey.ui.plans import plan, problems_of
from covey.ui.viewers import Busy, Credentials, Viewers, new_client

_log = get_logger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: Seconds of silence on an event stream after which a comment is sent.
_BEAT: Final = 15.0
_PLANS_CONTENT: Final = frozenset({"text/plain", "application/yaml", "application/json", "text/yaml"})
_JSON: Final = "application/json"


class Refused(Exception):  # noqa: N818 - named for what happened
    """A request that is not answered as asked."""

    def __init__(self, status: HTTPStatus, *errors: contract.ErrorDetail) -> None:
        super().__init__(errors[0].what)
        self.status = status
        self.errors = errors


class Server:
    """One UI.

    Args:
        gate: who may come in.
        viewers: whom it serves.
        hosts: the only values of Host that are meant for it; None for any.
        limits: bounds.
    """

    def __init__(
        self,
        gate: Authenticator,
        viewers: Viewers,
        *,
        hosts: Collection[str] | None = None,
        limits: PageLimits = DEFAULT,
    ) -> None:
        self._gate = gate
        self._viewers = viewers
        self._hosts = hosts
        self._limits = limits
        self._assets = load_assets()
        self._planning = asyncio.Lock()
        #: One thread: a plan goes on in it when its viewer has gone, and the next one waits for it.
        self._planner = ThreadPoolExecutor(1, "plan")
        self._asked: Counter[str] = Counter()
        self._tenants: Counter[str] = Counter()

    def application(self) -> web.Application:
        """All routes."""
        app = web.Application(middlewares=[self._guard], client_max_size=self._limits.manifest)
        router = app.router
        router.add_post("/api/session", self._session)
        router.add_get("/api/state", self._state)
        router.add_get("/api/events", self._events)
        router.add_get("/api/gangs/{namespace}/{name}/story", self._story)
        router.add_post("/api/plan", self._plan)
        router.add_get("/api/explain/{reason}", self._explain)
        router.add_get("/", self._file)
        router.add_get("/{file}", self._file)
        app.on_response_prepare.append(_secure)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Whatever goes wrong is said in one form."""
        try:
            self._check(request)
            return await handler(request)
        except web.HTTPException as error:
            return self._refuse(HTTPStatus(error.status), contract.ErrorDetail(error.reason))
        except TimeoutError:
            return self._refuse(HTTPStatus.GATEWAY_TIMEOUT, contract.ErrorDetail("it took too long; try again"))
        except (Refused, NotSignedIn, Busy, Ended, KubeError, InputError, MemoryError) as error:
            return self._refuse(*_in_words(error))

    def _check(self, request: web.Request) -> None:
        """Raise for a request that is not meant for this server; its files may be asked for from anywhere."""
        if not is_meant(request.headers, self._hosts):
            raise Refused(HTTPStatus.FORBIDDEN, contract.ErrorDetail("this server does not go by that name"))
        if request.path.startswith("/api/") and is_strange(request.method, request.headers):
            raise Refused(HTTPStatus.FORBIDDEN, contract.ErrorDetail("requests of other sites are not answered"))

    def _refuse(self, status: HTTPStatus, *errors: contract.ErrorDetail) -> web.Response:
        body = contract.ErrorReply(errors[0], self._gate.mode, errors if len(errors) > 1 else ())
        return _answer(body, status=status)

    def _credentials(self, request: web.Request) -> Credentials:
        return self._gate.credentials(bearer_token(request.headers.get("Authorization")))

    @contextmanager
    def _question(self, credentials: Credentials) -> Iterator[None]:
        """Something that the API server is asked for a viewer; raises Busy where too much of it is under way."""
        asked, viewer = self._asked, credentials.identity
        if asked[viewer] >= self._limits.questions or asked.total() >= self._limits.all_questions:
            raise Busy("too much is asked at once; try again in a moment")
        asked[viewer] += 1
        try:
            yield
        finally:
            asked[viewer] -= 1
            asked += Counter()  # forgets who asks nothing now

    @asynccontextmanager
    async def _long_question(self, credentials: Credentials) -> AsyncIterator[None]:
        """One that takes a while: of the service accounts of a namespace, and of all, only so many are under way."""
        with self._question(credentials):
            tenant = await self._viewers.tenant(credentials)
            asked, limits = self._tenants, self._limits
            if tenant is None:
                yield
                return
            if asked[tenant] >= limits.tenant_questions or asked.total() >= limits.account_questions:
                raise Busy("service accounts ask too much at once; try again in a moment")
            asked[tenant] += 1
            try:
                yield
            finally:
                asked[tenant] -= 1
                asked += Counter()

    async def _feed(self, request: web.Request) -> ViewerFeed:
        given = request.query.getall("namespace", None)
        namespaces = [namespace for namespace in given or () if namespace]
        if len(namespaces) > self._limits.namespaces:
            what = f"more than {self._limits.namespaces} namespaces at once are not shown"
            raise Refused(HTTPStatus.BAD_REQUEST, contract.ErrorDetail(what, "name fewer, or none for all"))
        for name in namespaces:
            _check_name(name)
        credentials = self._credentials(request)
        with self._question(credentials):
            return await self._viewers.feed(credentials, None if given is None else namespaces)

    async def _session(self, request: web.Request) -> web.Response:
        try:
            asked = msgspec.json.decode(await _body(request, {_JSON}), type=contract.Code)
        except msgspec.MsgspecError as error:
            raise Refused(HTTPStatus.BAD_REQUEST, contract.ErrorDetail(f"no code: {error}")) from None
        return _answer(contract.Session(self._gate.redeem(asked.code)))

    async def _state(self, request: web.Request) -> web.Response:
        feed = await self._feed(request)
        await feed.ready()
        answer = web.Response(body=feed.snapshot(), content_type=_JSON)
        answer.enable_compression()
        return answer

    async def _events(self, request: web.Request) -> web.StreamResponse:
        feed = await self._feed(request)
        async with feed.stream() as stream:
            sender = await Sender.open(request, self._limits.patience)
            try:
                await self._send_all(stream, sender)
            except Ended as end:
                body = contract.ErrorReply(contract.ErrorDetail(str(end)), self._gate.mode)
                with suppress(ConnectionError):
                    await sender.send("end", msgspec.json.encode(body))
            except ConnectionError:
                pass  # the page was closed
        return sender.response

    @staticmethod
    async def _send_all(stream: EventStream, sender: Sender) -> None:
        while True:
            try:
                async with asyncio.timeout(_BEAT):
                    kind, data = await stream.next()
            except TimeoutError:
                await sender.beat()
            else:
                await sender.send(kind, data)

    async def _story(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        _check_name(namespace)
        _check_name(name)
        credentials = self._credentials(request)
        async with self._long_question(credentials), new_client(credentials.connection) as client:
            story = await read_story(client, namespace, name, time.time())
        return _answer(story, compress=True)

    async def _plan(self, request: web.Request) -> web.Response:
        credentials = self._credentials(request)
        namespace = request.query.get("namespace") or "default"
        _check_name(namespace)
        body = await _body(request, _PLANS_CONTENT)
        try:
            manifest = body.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise Refused(
                HTTPStatus.BAD_REQUEST, contract.ErrorDetail(f"is not UTF-8 text (byte {error.start})")
            ) from None
        async with self._long_question(credentials), self._planning:
            async with new_client(credentials.connection) as client:
                facts, denied = await read_facts(client, (namespace,))
            planned = partial(plan, manifest, namespace, facts, denied, time.perf_counter)
            answer = await asyncio.get_running_loop().run_in_executor(self._planner, planned)
        return _answer(answer, compress=True)

    async def _explain(self, request: web.Request) -> web.Response:
        self._credentials(request)
        reason = request.match_info["reason"]
        explanation = reasons.explain(reason)
        meaning = explanation.meaning if explanation else reasons.GOOD.get(reason) or reasons.BAD.get(reason)
        if meaning is None:
            raise Refused(HTTPStatus.NOT_FOUND, contract.ErrorDetail(f"{reason[:100]} is no reason of Covey's"))
        remedy, needs_person = (explanation.remedy, explanation.needs_person) if explanation else ("", False)
        return _answer(contract.Explained(reason, meaning, remedy, needs_person))

    async def _file(self, request: web.Request) -> web.Response:
        asset = self._assets.get(request.match_info.get("file", INDEX))
        if asset is None:
            raise Refused(HTTPStatus.NOT_FOUND, contract.ErrorDetail("there is no such file"))
        return _asset(request, asset)


async def _secure(_: web.Request, response: web.StreamResponse) -> None:
    for name, value in SECURITY.items():
        response.headers[name] = value
    response.headers["Server"] = "covey"
    response.headers.setdefault("Cache-Control", "no-store")


def _answer(body: Any, *, status: HTTPStatus = HTTPStatus.OK, compress: bool = False) -> web.Response:
    answer = web.Response(body=msgspec.json.encode(body), status=status, content_type=_JSON)
    if compress:
        answer.enable_compression()
    return answer


def _asset(request: web.Request, asset: Asset) -> web.Response:
    headers = {"ETag": asset.tag, "Cache-Control": "no-cache", "Content-Type": asset.type}
    if request.headers.get("If-None-Match") == asset.tag:
        return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
    answer = web.Response(body=asset.content, headers=headers)
    answer.enable_compression()
    return answer


async def _body(request: web.Request, types: Collection[str]) -> bytes:
    """The body, of a type that a page of another site cannot send unasked, but for ``text/plain``."""
    if request.content_type not in types:
        what = f"Content-Type {request.content_type} is not taken"
        raise Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, contract.ErrorDetail(what, f"send {', '.join(sorted(types))}"))
    async with asyncio.timeout(_BEAT):
        return await request.read()


def _check_name(name: str) -> None:
    """Names come into paths: anything that is none is not sent on."""
    plain = name.replace("-", "").replace(".", "")
    if not (0 < len(name) <= 253 and plain.isascii() and plain.isalnum()):
        raise Refused(HTTPStatus.BAD_REQUEST, contract.ErrorDetail("this is no name of a namespace or a resource"))


def _in_words(error: Exception) -> tuple[HTTPStatus, *tuple[contract.ErrorDetail, ...]]:
    problem = contract.ErrorDetail
    match error:
        case Refused():
            return error.status, *error.errors
        case CodeUsed():
            return HTTPStatus.CONFLICT, problem(str(error))
        case NotSignedIn() | Expired():
            return HTTPStatus.UNAUTHORIZED, problem(str(error))
        case Ended():
            return HTTPStatus.SERVICE_UNAVAILABLE, problem(str(error))
        case Unauthorized():
            return HTTPStatus.UNAUTHORIZED, problem("the API server does not take this token", "get a new one")
        case MemoryError():
            return HTTPStatus.SERVICE_UNAVAILABLE, problem("it takes more memory than this server may have")
        case Busy():
            return HTTPStatus.TOO_MANY_REQUESTS, problem(str(error))
        case InputError():
            return HTTPStatus.BAD_REQUEST, *problems_of(error)
        case Forbidden():
            return HTTPStatus.FORBIDDEN, problem(error.message or str(error), "ask for the rights")
        case NotFound():
            return HTTPStatus.NOT_FOUND, problem(error.message or str(error))
        case ApiError():
            return HTTPStatus.BAD_GATEWAY, problem(f"the API server refused: {error.message or error}")
        case _:
            return HTTPStatus.BAD_GATEWAY, problem(f"the API server does not answer: {error}")

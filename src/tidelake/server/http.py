"""Answer HTTP: let a request in, decode it, stage its rows, and answer when they are durable.

For each request, in this order:

1. find the token, and whether it has the role that the route needs
2. read the body, each piece counted before the next is asked for
3. decompress and decode, small bodies at once and large ones in a thread
4. check that the token reaches every table that the body names
5. stage the rows of each table, and wait for their outcomes
6. have the protocol word the answer

It does not know what a protocol's bytes mean: see ``protocols``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

import xxhash
from starlette.routing import Match, Router
from starlette.routing import Route as HttpRoute

from tidelake.catalog.protocol import now_us
from tidelake.errors import TidelakeError
from tidelake.server.access import Grant
from tidelake.server.bodies import decompressed
from tidelake.server.call import Answer, Call, Load, Outcome, Route, Work, first_error
from tidelake.server.credentials import Keeper, token_of
from tidelake.server.memory import Budget
from tidelake.server.meters import CONTENT_TYPE, Meters, summed
from tidelake.server.refusals import Refusal, TooLarge, TooSlow, failure_of
from tidelake.server.settings import ServeSettings
from tidelake.server.siblings import Siblings
from tidelake.server.staging import Place, Staging

Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]

SMALL_BYTES = 16 << 10  # of a body that is decoded in the event loop: handing it to a thread takes as long
BODY_WITHIN_S = 60.0  # a body must come
DECODE_THREADS = 2
TENANT_HEADERS = ("x-tidelake-namespace", "x-scope-orgid")
USER_HEADER = "x-tidelake-user"
KEY_HEADER = "idempotency-key"
ABORT = "tidelake.abort"  # among a request's extensions: closes its connection, whatever is still to be sent


@dataclass(slots=True)
class Doors:
    """What all routes of a server share."""

    settings: ServeSettings
    staging: Staging
    budget: Budget
    meters: Meters
    keeper: Keeper
    siblings: Siblings = field(default_factory=Siblings)
    is_warm: bool = False  # before, a decoder may have to be compiled, for which the event loop does not wait
    threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(DECODE_THREADS, thread_name_prefix="tidelake-decode")
    )

    async def grant(self, headers: Mapping[str, str]) -> Grant:
        """Return what the token of a request allows; Unauthenticated if it has none that is known."""
        token = token_of(headers)
        grant = self.keeper.known(token)
        if grant is None:
            loop = asyncio.get_running_loop()
            grant = await loop.run_in_executor(self.threads, self.keeper.find, token or "")
        return grant

    async def decoded(self, call: Call, encoding: str, decode: Callable[[Call], Work]) -> tuple[Call, Work]:
        """Decompress and decode a request's body, in a thread if that may take long."""
        limit = self.settings.max_body_bytes
        if len(call.body) <= SMALL_BYTES and self.is_warm:
            return _decoded(call, encoding, limit, decode)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.threads, _decoded, call, encoding, limit, decode)

    async def staged(self, work: Work, call: Call, grant: Grant, key: str | None, size: int) -> list[Outcome]:
        """Stage the rows of a request, and return the outcome of each load once it is known."""
        user = grant.user(call.headers.get(USER_HEADER))
        for load in work.loads:
            grant.check("write", load.table)
        if not work.loads:
            return []
        self.keeper.allowance.rows(grant, size)
        share = max(1, size // len(work.loads))
        waiting: list[asyncio.Future[Outcome]] = []
        error: TidelakeError | None = None
        try:
            for load, own in zip(work.loads, _keys(work.loads, key), strict=True):
                waiting.append(self.staging.offer(Place(load.table, user), load, key=own, size=share))
        except TidelakeError as refused:  # what was staged before it goes in, and a second try finds it there
            error = refused
        outcomes = [await each for each in waiting]
        if any(not isinstance(each, TidelakeError) for each in outcomes):
            self.keeper.allowance.stored(grant, size)
        if error is not None:
            raise error
        return outcomes


def _decoded(call: Call, encoding: str, limit: int, decode: Callable[[Call], Work]) -> tuple[Call, Work]:
    if encoding:
        body = decompressed(call.body, encoding, limit)
        call = Call(
            body, call.headers, call.path, call.query, call.method, call.url_path, call.namespace, call.received_us
        )
    return call, decode(call)


def key_of(call: Call, *, is_once: bool) -> str | None:
    """Return the key under which a request happens once, if it has one: what its client says, or its body's hash."""
    told = call.headers.get(KEY_HEADER)
    if told:
        return f"key:{told}"
    return f"body:{xxhash.xxh3_128_hexdigest(call.body)}" if is_once and call.body else None


def _keys(loads: Sequence[Load], key: str | None) -> Iterable[str | None]:
    """Yield a key for each load, so that two for one table are told apart."""
    seen: dict[str, int] = {}
    for load in loads:
        at = seen[load.table] = seen.get(load.table, -1) + 1
        yield key if key is None or not at else f"{key}#{at}"


class _Door:
    """One route, as the server calls it."""

    def __init__(self, doors: Doors, route: Route, protocol: str) -> None:
        self._doors, self._route, self._protocol = doors, route, protocol

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        doors = self._doors
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        call = Call(
            b"",
            headers,
            scope.get("path_params", {}),
            dict(parse_qsl(scope["query_string"].decode("latin-1"))) if scope["query_string"] else {},
            scope["method"],
            scope["path"],
            received_us=now_us(),
        )
        held = Held(doors.budget)
        began_s = time.monotonic()
        try:
            answer = await self._answered(call, receive, held)
        except TidelakeError as error:
            answer = self._route.refuse(call, failure_of(error))
        except Exception as error:
            doors.meters.defect(self._protocol, error)
            answer = self._route.refuse(call, failure_of(error))
        finally:
            held.give()
        doors.meters.answered(self._protocol, answer.status, held.most, time.monotonic() - began_s)
        await send_answer(send, answer, with_body=scope["method"] != "HEAD")

    async def _answered(self, call: Call, receive: Receive, held: Held) -> Answer:
        doors, route = self._doors, self._route
        # 1. Who asks?
        if not route.role:
            return route.decode(call).answer([])
        grant = await doors.grant(call.headers)
        grant.check(route.role)
        doors.keeper.allowance.request(grant)
        namespace = grant.namespace(next((call.headers[name] for name in TENANT_HEADERS if name in call.headers), None))
        # 2. Read.
        body = await read_body(receive, call.headers, doors.settings.max_body_bytes, held.take)
        call = Call(body, call.headers, call.path, call.query, call.method, call.url_path, namespace, call.received_us)
        # 3. Decode.
        encoding = call.headers.get("content-encoding", route.encoding)
        if route.check is not None:
            route.check(call)
        call, work = await doors.decoded(call, encoding, route.decode)
        held.take(len(call.body) - len(body))
        # 4. and 5. Stage.
        outcomes = await doors.staged(
            work, call, grant, key_of(call, is_once=route.is_once or work.is_once), len(call.body)
        )
        # 6. Answer.
        if route.errors_first and (error := first_error(outcomes)) is not None:
            raise error
        return work.answer(outcomes)


class Held:
    """The bytes that one request holds."""

    def __init__(self, budget: Budget) -> None:
        self._budget, self._size, self.most = budget, 0, 0

    def take(self, size: int) -> None:
        if size > 0:
            self._budget.take(size)
        else:
            self._budget.give(-size)
        self._size += size
        self.most = max(self.most, self._size)

    def give(self) -> None:
        self._budget.give(self._size)
        self._size = 0


async def read_body(
    receive: Receive, headers: Mapping[str, str], limit: int, take: Callable[[int], None] = lambda size: None
) -> bytes:
    """Read a body, each piece counted before the next is asked for."""
    told = headers.get("content-length", "")
    if told.isdigit() and int(told) > limit:
        raise TooLarge("the body is too large", limit_bytes=limit)
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_WITHIN_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refusal("the client is gone", kind="gone")
                if part := message.get("body", b""):
                    size += len(part)
                    if size > limit:
                        raise TooLarge("the body is too large", limit_bytes=limit)
                    take(len(part))
                    parts.append(part)
                if not message.get("more_body"):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
    except TimeoutError:
        raise TooSlow("the body did not come in time", seconds=BODY_WITHIN_S) from None


async def send_answer(send: Send, answer: Answer, *, with_body: bool = True) -> None:
    """Send a whole answer."""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers.items()]
    headers.append((b"content-length", b"%d" % len(answer.body)))
    if answer.body and "content-type" not in answer.headers:
        headers.append((b"content-type", answer.content_type.encode("latin-1")))
    if answer.status in (408, 413):
        headers.append((b"connection", b"close"))  # the rest of the body is not read
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body if with_body else b""})


def make_app(
    doors: Doors,
    protocols: Mapping[str, Sequence[Route]],
    ready: Callable[[], Awaitable[None]],
    others: Sequence[HttpRoute] = (),
) -> Router:
    """Return the application that has all routes of all protocols, those by which it is looked after, and others."""
    routes = [
        HttpRoute(route.path, _Door(doors, route, name), methods=list(route.methods))
        for name, several in protocols.items()
        for route in several
    ]
    own = (_Own("/healthz", _healthy, ""), _Own("/readyz", ready, ""), _Own("/metrics", None, "admin"))
    return _Routes([*others, *routes, *(HttpRoute(o.path, _OwnDoor(doors, o), methods=["GET"]) for o in own)])


class _Routes(Router):
    """Routes that are found by their path, where that has no parameters, and not by asking all of them in turn."""

    def __init__(self, routes: Sequence[HttpRoute]) -> None:
        super().__init__(routes=routes)
        plain = {route.path for route in routes if "{" not in route.path}
        self._known = {path: [route for route in routes if route.path_regex.match(path)] for path in plain}

    async def app(self, scope: Message, receive: Receive, send: Send) -> None:
        """Hand a request to its route."""
        for route in self._known.get(scope.get("path", ""), ()):
            match, found = route.matches(scope)
            if match is Match.FULL:
                scope.update(found)
                await route.handle(scope, receive, send)
                return
        await super().app(scope, receive, send)

    async def not_found(self, scope: Message, receive: Receive, send: Send) -> None:
        """Say that nobody answers at an address."""
        await send_answer(send, Answer.json({"error": "there is nothing at this address", "kind": "no_address"}, 404))


@dataclass(frozen=True, slots=True)
class _Own:
    path: str
    check: Callable[[], Awaitable[None]] | None
    role: str


async def _healthy() -> None:
    """Answer: whoever can is."""


class _OwnDoor:
    """A route by which a server is looked after."""

    def __init__(self, doors: Doors, own: _Own) -> None:
        self._doors, self._own = doors, own

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        try:
            if self._own.role:
                (await self._doors.grant(headers)).check(self._own.role)
            if self._own.check is None:
                others = await self._doors.siblings.heard("meters")
                answer = Answer(200, summed([self._doors.meters.text(), *others]).encode(), CONTENT_TYPE)
            else:
                await self._own.check()
                answer = Answer.json({"status": "ok"})
        except TidelakeError as error:
            failure = failure_of(error)
            answer = Answer.json({"status": "unavailable", "error": failure.message}, failure.status, **failure.headers)
        await send_answer(send, answer)

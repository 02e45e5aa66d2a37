"""Say what a door is, and answer at it: whole answers, and streams that end when the client is gone.

A stream has its status when its first piece is there, so that what goes wrong before is an answer like any other; what
goes wrong later closes the connection before the last piece, which no client takes for a whole answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import parse_qsl

from starlette.routing import Route as HttpRoute

from tidelake.catalog.protocol import now_us
from tidelake.errors import TidelakeError
from tidelake.lake import Lake
from tidelake.query.session import Language
from tidelake.server.access import Grant
from tidelake.server.bodies import decompressed
from tidelake.server.call import Answer, Call, Refuser, refuse
from tidelake.server.http import (
    TENANT_HEADERS,
    USER_HEADER,
    Doors,
    Message,
    Receive,
    Send,
    read_body,
    send_answer,
)
from tidelake.server.questions import READ_WITHIN_S, Gone, Question, Questions, checked_budget
from tidelake.server.refusals import failure_of

MAX_QUESTION_BYTES = 1 << 20
FORM = "application/x-www-form-urlencoded"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, who made it, and what it may ask."""

    call: Call
    grant: Grant
    user: str | None
    lake: Lake
    questions: Questions
    pairs: tuple[tuple[str, str], ...] = ()  # what the address and a form tell, in order, names that come twice too

    def question(
        self, text: str, language: Language, budget: object = None, *, namespace: str | None = None
    ) -> Question:
        """Return a question of this client's; tables that name no namespace are in the one given, or the token's."""
        own = namespace or self.call.namespace
        return Question(text, language, self.grant, own, self.user, checked_budget(budget))

    def may_see(self, table: str) -> bool:
        """Whether a table, by its full name, is in the client's sight."""
        return self.grant.may_reach(table)


@dataclass(frozen=True, slots=True)
class Streamed:
    """An answer that comes in pieces."""

    pieces: AbstractAsyncContextManager[AsyncIterator[bytes]]
    content_type: str
    headers: Mapping[str, str] = field(default_factory=dict)


Answering: TypeAlias = Callable[[Asked], Awaitable[Answer | Streamed]]


@dataclass(frozen=True, slots=True)
class Door:
    """One address: what answers there, which role a token needs, and how failures are told."""

    path: str
    answer: Answering
    methods: tuple[str, ...] = ("POST",)
    role: str = "read"
    refuse: Refuser = refuse


class Opened:
    """A door as the server calls it."""

    def __init__(self, door: Door, name: str, doors: Doors, lake: Lake, questions: Questions) -> None:
        self._door, self._name, self._doors = door, name, doors
        self._lake, self._questions = lake, questions

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"))) if scope["query_string"] else {}
        path = scope.get("path_params", {})
        call = Call(b"", headers, path, query, scope["method"], scope["path"], received_us=now_us())
        began_s, status = time.monotonic(), 500
        try:
            asked = await self._asked(call, receive, parse_qsl(scope["query_string"].decode("latin-1")))
            answer = await self._door.answer(asked)
            if isinstance(answer, Streamed):
                status = await _stream(answer, receive, send)
                return
        except Gone:
            status = Gone.status
            return
        except TidelakeError as error:
            answer = self._door.refuse(call, failure_of(error))
        except Exception as error:
            self._doors.meters.defect(self._name, error)
            answer = self._door.refuse(call, failure_of(error))
        finally:
            if status != 500:
                self._doors.meters.answered(self._name, status, 0, time.monotonic() - began_s)
        self._doors.meters.answered(self._name, answer.status, 0, time.monotonic() - began_s)
        await send_answer(send, answer, with_body=scope["method"] != "HEAD")

    async def _asked(self, call: Call, receive: Receive, query: Sequence[tuple[str, str]]) -> Asked:
        grant = await self._doors.grant(call.headers)
        grant.check(self._door.role)
        self._doors.rates.check(grant, 0)
        namespace = grant.namespace(next((call.headers[name] for name in TENANT_HEADERS if name in call.headers), None))
        user = grant.user(call.headers.get(USER_HEADER))
        body = await read_body(receive, call.headers, MAX_QUESTION_BYTES)
        if encoding := call.headers.get("content-encoding", ""):
            body = decompressed(body, encoding, MAX_QUESTION_BYTES)
        own = Call(body, call.headers, call.path, call.query, call.method, call.url_path, namespace, call.received_us)
        pairs = [*query]
        if call.content_type == FORM:
            pairs += parse_qsl(body.decode("latin-1"), keep_blank_values=True)
        return Asked(own, grant, user, self._lake, self._questions, tuple(pairs))


async def _stream(answer: Streamed, receive: Receive, send: Send) -> int:
    """Send pieces as they come; end when the client goes."""
    gone = asyncio.ensure_future(_disconnected(receive))
    is_begun = False
    try:
        async with answer.pieces as pieces:
            while True:
                getting = asyncio.ensure_future(_next(pieces))
                await asyncio.wait([getting, gone], return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    getting.cancel()
                    raise Gone("the client is gone")
                piece = getting.result()
                if not is_begun:
                    await _begin(send, answer)
                    is_begun = True
                async with asyncio.timeout(READ_WITHIN_S):
                    await send({"type": "http.response.body", "body": piece or b"", "more_body": piece is not None})
                if piece is None:
                    return 200
    except TimeoutError:
        raise Gone("the client reads no more") from None
    except TidelakeError:
        if is_begun:
            raise Gone("an answer that had begun was not finished") from None
        raise
    finally:
        gone.cancel()


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)


async def _begin(send: Send, answer: Streamed) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers.items()]
    headers.append((b"content-type", answer.content_type.encode("latin-1")))
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def opened(doors: Mapping[str, Sequence[Door]], shared: Doors, lake: Lake, questions: Questions) -> list[HttpRoute]:
    """Return the routes of all doors."""
    return [
        HttpRoute(door.path, Opened(door, name, shared, lake, questions), methods=list(door.methods))
        for name, several in doors.items()
        for door in several
    ]

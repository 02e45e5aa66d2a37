"""Say what a door is, and answer at it: whole answers, and streams that end when the client is gone.

A stream has its status when its first piece is there, so that what goes wrong before is an answer like any other; what
goes wrong later closes the connection before the last piece, which no client takes for a whole answer.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from starlette.routing import Route as HttpRoute

from tidelake.catalog.protocol import now_us, parse_table_name
from tidelake.errors import CorruptError, InvalidInputError, NotFoundError, TidelakeError, redacted
from tidelake.handle.table_handle import TableHandle
from tidelake.lake import Lake
from tidelake.query.result import Result
from tidelake.query.seen import View
from tidelake.query.session import Language
from tidelake.server.access import Grant
from tidelake.server.bodies import decompressed
from tidelake.server.call import JSON, Answer, Call, Outcome, Refuser, Work, refuse
from tidelake.server.credentials import ANONYMOUS
from tidelake.server.http import (
    ABORT,
    TENANT_HEADERS,
    USER_HEADER,
    Doors,
    Held,
    Message,
    Receive,
    Send,
    read_body,
    send_answer,
)
from tidelake.server.question import Question
from tidelake.server.questions import READ_WITHIN_S, Gone, Last, Pipe, Questions, Slow, checked_budget
from tidelake.server.refusals import failure_of
from tidelake.server.running import TEXT_SHOWN, Running

MAX_QUESTION_BYTES = 1 << 20
CACHE_HEADER = "x-tidelake-cache"
FORM = "application/x-www-form-urlencoded"


log = logging.getLogger("tidelake.server")

Described: TypeAlias = Callable[[], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, who made it, and what it may ask."""

    call: Call
    grant: Grant
    user: str | None
    lake: Lake
    questions: Questions
    door: str = ""
    description: Described = dict  # of all routes
    doors: Doors | None = None
    pairs: tuple[tuple[str, str], ...] = ()  # what the address and a form tell, in order, names that come twice too

    def question(
        self,
        text: str,
        language: Language,
        budget: object = None,
        *,
        namespace: str | None = None,
        view: View | None = None,
    ) -> Question:
        """Return a question of this client's; tables that name no namespace are in the one given, or the token's."""
        own = namespace or self.call.namespace
        budgeted = checked_budget(budget)
        return Question(text, language, self.grant, own, self.user, budgeted, view or View(), self.door)

    async def rows(
        self,
        question: Question,
        form: str,
        write: Callable[[Result, Pipe], None],
        content_type: str,
        headers: Mapping[str, str],
    ) -> Answer | Streamed:
        """Answer with what ``write`` makes of a question's result; or what it made before, if nothing has changed."""
        kept = await self.questions.kept_answer(question, form)
        if kept is not None:
            return Answer(200, kept, content_type, {**headers, CACHE_HEADER: "hit"})
        pieces = self.questions.answered(question, write, keep_as=form)
        return Streamed(pieces, content_type, {**headers, CACHE_HEADER: "miss"}, is_of_one=True)

    async def stage(self, body: bytes, decode: Callable[[Call], Work], key: str | None) -> list[Outcome]:
        """Have rows decoded and committed, and return what came of them once it is known."""
        assert self.doors is not None
        call = replace(self.call, body=body)
        call, work = await self.doors.decoded(call, "", decode)
        return await self.doors.staged(work, call, self.grant, key, len(body))

    def running(self, text: str, language: str) -> Running:
        """Return an entry for the list of what runs, of something that is asked in another way."""
        return Running(text[:TEXT_SHOWN], language, self.grant.id, self.grant.name, self.door)

    def may_see(self, table: str) -> bool:
        """Whether a table, by its full name, is in the client's sight."""
        return self.grant.may_reach(table)

    def table(self, name: str) -> TableHandle:
        """Hold a table as the client sees it; NotFoundError, as for one that is not there, if it is out of sight."""
        full = ".".join(parse_table_name(self.call.table(name)))
        if not self.may_see(full):
            raise NotFoundError("no such table", table=full, kind="no_table")
        return TableHandle.seen_by(self.lake.handle, full, self.user)

    def number(self, name: str, default: int, *, least: int = 0, most: int) -> int:
        """Return a parameter that is a whole number."""
        told = self.call.query.get(name, str(default))
        if not re.fullmatch(r"\d{1,18}", told) or not least <= int(told) <= most:
            raise InvalidInputError(f"{name} is a number from {least} to {most}", got=told[:40], kind="bad_parameter")
        return int(told)


@dataclass(frozen=True, slots=True)
class Streamed:
    """An answer that comes in pieces."""

    pieces: AbstractAsyncContextManager[AsyncIterator[bytes]]
    content_type: str
    headers: Mapping[str, str] = field(default_factory=dict)
    is_of_one: bool = False  # question, whose last piece is the last of the answer


Answering: TypeAlias = Callable[[Asked], Awaitable[Answer | Streamed]]


@dataclass(frozen=True, slots=True)
class About:
    """What a door's description says: what it does, which parameters an address may have, what a body has.

    Parameters and members of the body have their meanings in words, by their names; others than these are refused.
    """

    summary: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, str] = field(default_factory=dict)
    answer: str = JSON


@dataclass(frozen=True, slots=True)
class Door:
    """One address: what answers there, which role a token needs, and how failures are told."""

    path: str
    answer: Answering
    methods: tuple[str, ...] = ("POST",)
    role: str = "read"
    refuse: Refuser = refuse
    about: About | None = None
    encoding: str = ""  # of bodies whose header names none
    takes_rows: bool = False  # its body may be as large as one of rows, and counts as such
    is_long: bool = False  # its whole answer may take long to make, which ends when the client goes


class Opened:
    """A door as the server calls it."""

    def __init__(
        self, door: Door, name: str, doors: Doors, lake: Lake, questions: Questions, description: Described
    ) -> None:
        self._door, self._name, self._doors = door, name, doors
        self._lake, self._questions, self._description = lake, questions, description

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"))) if scope["query_string"] else {}
        path = scope.get("path_params", {})
        call = Call(b"", headers, path, query, scope["method"], scope["path"], received_us=now_us())
        began_s, status, held = time.monotonic(), 500, Held(self._doors.budget)
        try:
            asked = await self._asked(call, receive, parse_qsl(scope["query_string"].decode("latin-1")), held)
            making = self._door.answer(asked)
            answer = await (_while_there(making, receive) if self._door.is_long else making)
            if isinstance(answer, Streamed):
                status = await _stream(answer, receive, send)
                return
        except Gone as error:
            status = Gone.status
            if isinstance(error, Slow) and (abort := scope.get("extensions", {}).get(ABORT)) is not None:
                abort()  # what it was sent already would wait for it
            return
        except TidelakeError as error:
            _heed(error)
            answer = self._door.refuse(call, failure_of(error, of_question=not self._door.takes_rows))
        except Exception as error:
            self._doors.meters.defect(self._name, error)
            answer = self._door.refuse(call, failure_of(error))
        finally:
            held.give()
            if status != 500:
                self._doors.meters.answered(self._name, status, 0, time.monotonic() - began_s)
        self._doors.meters.answered(self._name, answer.status, 0, time.monotonic() - began_s)
        await send_answer(send, answer, with_body=scope["method"] != "HEAD")

    async def _asked(self, call: Call, receive: Receive, query: Sequence[tuple[str, str]], held: Held) -> Asked:
        grant = await self._doors.grant(call.headers) if self._door.role else ANONYMOUS
        if self._door.role:
            grant.check(self._door.role)
        self._doors.keeper.allowance.request(grant)
        if self._door.about is not None and (unknown := sorted(set(call.query) - set(self._door.about.query))):
            known = ", ".join(self._door.about.query) or "none"
            raise InvalidInputError("no such parameter", got=unknown[0][:40], known=known, kind="unknown_parameter")
        namespace = grant.namespace(next((call.headers[name] for name in TENANT_HEADERS if name in call.headers), None))
        user = grant.user(call.headers.get(USER_HEADER))
        limit = self._doors.settings.max_body_bytes if self._door.takes_rows else MAX_QUESTION_BYTES
        body = await read_body(receive, call.headers, limit, held.take)
        if body and (encoding := call.headers.get("content-encoding", self._door.encoding)):
            loop, size = asyncio.get_running_loop(), len(body)
            body = await loop.run_in_executor(self._doors.threads, decompressed, body, encoding, limit)
            held.take(len(body) - size)
        own = Call(body, call.headers, call.path, call.query, call.method, call.url_path, namespace, call.received_us)
        pairs = [*query]
        if call.content_type == FORM:
            pairs += parse_qsl(body.decode("latin-1"), keep_blank_values=True)
        return Asked(
            own, grant, user, self._lake, self._questions, self._name, self._description, self._doors, tuple(pairs)
        )


async def _stream(answer: Streamed, receive: Receive, send: Send) -> int:
    """Send pieces as they come; end when the client goes."""
    own = asyncio.current_task()
    assert own is not None
    gone = asyncio.ensure_future(_disconnected(receive))
    gone.add_done_callback(lambda found: None if found.cancelled() else own.cancel())
    is_begun = is_sent = False
    try:
        async with answer.pieces as pieces:
            async for piece in pieces:
                is_last = answer.is_of_one and isinstance(piece, Last)
                if not is_begun:
                    await _begin(send, answer, len(piece) if is_last else None)
                    is_begun = True
                async with asyncio.timeout(READ_WITHIN_S):
                    await send({"type": "http.response.body", "body": piece, "more_body": not is_last})
                is_sent = is_last
            if not is_begun:
                await _begin(send, answer, 0)
            if not is_sent:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            is_sent = True
    except asyncio.CancelledError:
        if not gone.done():
            raise
        own.uncancel()  # it was said here, and is heard
        if not is_sent:
            raise Gone("the client is gone") from None
    except TimeoutError:
        raise Slow("the client reads no more") from None
    except Gone:
        raise
    except TidelakeError as error:
        if is_begun:
            _heed(error)
            raise Gone("an answer that had begun was not finished") from None
        raise
    finally:
        gone.cancel()
    return 200


def _heed(error: TidelakeError) -> None:
    """Log what somebody must look at; clients are not told where it is."""
    if isinstance(error, CorruptError):
        log.error("damaged kind=%s: %s", error.kind, redacted(str(error)))


async def _while_there(making: Awaitable[Answer | Streamed], receive: Receive) -> Answer | Streamed:
    """Return an answer once it is made; what makes it is cancelled when the client goes."""
    own = asyncio.current_task()
    assert own is not None
    gone = asyncio.ensure_future(_disconnected(receive))
    gone.add_done_callback(lambda found: None if found.cancelled() else own.cancel())
    try:
        return await making
    except asyncio.CancelledError:
        if not gone.done():
            raise
        own.uncancel()
        raise Gone("the client is gone") from None
    finally:
        gone.cancel()


async def _begin(send: Send, answer: Streamed, whole_bytes: int | None) -> None:
    """Send the head of an answer, with its size if all of it is there."""
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers.items()]
    headers.append((b"content-type", answer.content_type.encode("latin-1")))
    if whole_bytes is not None:
        headers.append((b"content-length", b"%d" % whole_bytes))
    await send({"type": "http.response.start", "status": 200, "headers": headers})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def opened(
    doors: Mapping[str, Sequence[Door]], shared: Doors, lake: Lake, questions: Questions, description: Described
) -> list[HttpRoute]:
    """Return the routes of all doors."""
    return [
        HttpRoute(door.path, Opened(door, name, shared, lake, questions, description), methods=list(door.methods))
        for name, several in doors.items()
        for door in several
    ]

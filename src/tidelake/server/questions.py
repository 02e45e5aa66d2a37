"""Ask a lake on behalf of clients: with a budget, in turn, within what their tokens reach, and only while they listen.

A question runs in a thread. What it writes goes to the client a piece at a time through a short line: who reads slowly
holds up the question and not the server's memory, and who stops reading for long, or goes away, ends it. It does not
know how questions and answers are worded: see the doors.
"""

from __future__ import annotations

import asyncio
import io
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pyarrow as pa

from tidelake.errors import InvalidInputError, TidelakeError
from tidelake.lake import Lake
from tidelake.query.budget import Budget
from tidelake.query.result import Result
from tidelake.query.session import run
from tidelake.server.access import Grant
from tidelake.server.gate import Gate
from tidelake.server.kept_answers import KeptAnswers
from tidelake.server.question import Question
from tidelake.server.refusals import Busy, Refusal
from tidelake.server.running import TEXT_SHOWN, Running, RunningQuestions
from tidelake.server.siblings import Siblings

AT_ONCE = 4
WAITING = 512
LOOKS_AT_ONCE = 2  # at what the catalog knows: they do not wait for questions
PIECE_BYTES = 256 << 10
LINE = 4  # pieces between a question and who reads it
TURN_WITHIN_S = 30.0  # a thread waits for its turn
LOOK_AFTER_S = 5.0  # between looks whether a client still reads
READ_WITHIN_S = 30.0  # a piece must be taken by the client
CROWDED_WITHIN_S = 2.0  # while others wait for their turn
STOPPED_LOOK_S = 0.2  # between looks whether a question that waits for its client was stopped


@dataclass(frozen=True, slots=True)
class Limits:
    """What one question may cost, whatever its client asks for."""

    seconds: float = 60.0
    memory_bytes: int = 1 << 30
    kept_bytes: int = 64 << 20  # of answers that are kept


class Gone(Refusal):
    """The client is gone, or reads no more."""

    default_kind, status = "gone", 499


class Slow(Gone):
    """The client is there, and takes nothing."""

    default_kind = "slow"


class Last(bytes):
    """The last piece of what a question gave; if it is also the first, it is all of it."""

    __slots__ = ()


class Questions:
    """The questions that a server answers. It belongs to the thread of an event loop."""

    def __init__(
        self, lake: Lake, limits: Limits | None = None, *, at_once: int = AT_ONCE, siblings: Siblings | None = None
    ) -> None:
        self._lake, self._limits = lake, limits or Limits()
        self.kept = KeptAnswers(lake, self._limits.kept_bytes)
        self.running = RunningQuestions(siblings)
        self._loop = asyncio.get_running_loop()
        self._gate = Gate(at_once, WAITING)
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="tidelake-question")
        self._looks = Gate(LOOKS_AT_ONCE, WAITING)
        self._looking = ThreadPoolExecutor(LOOKS_AT_ONCE, thread_name_prefix="tidelake-look")

    async def kept_answer(self, question: Question, form: str, *, count: bool = True) -> bytes | None:
        """Return the answer to a question in a form, if it is kept and still true."""
        if not self.kept.may_have(question, form):  # there is no need to ask the catalog
            self.kept.missed(question, count=count)
            return None
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._looking, partial(self.kept.find, question, form, count=count))

    @asynccontextmanager
    async def answered(
        self, question: Question, write: Callable[[Result, Pipe], None], *, keep_as: str | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Ask, and yield what ``write`` makes of the result as pieces of bytes; leaving ends the question.

        With a form to ``keep_as``, the answer is kept for whoever asks the same.
        """
        loop = asyncio.get_running_loop()
        async with self._gate.passing(question.grant.id):
            with self.running.listed(_running(question)) as running:
                pipe = Pipe(loop, running, self.patience_s, kept_bytes=self.kept.answer_bytes if keep_as else 0)
                task = loop.run_in_executor(self._threads, self._ask, question, write, pipe, keep_as)
                try:
                    yield pipe.pieces(task)
                except asyncio.CancelledError:
                    if not pipe.is_given_up:
                        raise
                    pipe.reader.uncancel()  # it was the pipe that said so
                    raise Slow("the client reads no more") from None
                finally:
                    pipe.stop()
                    if not task.done():
                        await asyncio.wait([task])
                    if not task.cancelled():
                        task.exception()  # heard: whoever reads the pieces was told

    async def whole(self, question: Question, make: Callable[[Result], Any]) -> Any:
        """Ask, and return what ``make`` makes of the result."""
        async with self._gate.passing(question.grant.id):
            with self.running.listed(_running(question)) as running:
                return await self._done(self._threads, running, lambda: make(self._run(question, running)))

    async def worked(self, running: Running, work: Callable[[Budget], Any]) -> Any:
        """Do something that asks the lake, in turn and with a budget, and return what it gives."""
        budget = Budget(self._limits.seconds, self._limits.memory_bytes, is_stopped=running.is_stopped)
        async with self._gate.passing(running.who):
            with self.running.listed(running):
                return await self._done(self._threads, running, lambda: work(budget))

    async def looked(self, grant: Grant, look: Callable[[], Any]) -> Any:
        """Look at what the catalog knows, in turn with others who do, and return it; no rows are read."""
        async with self._looks.passing(grant.id):
            return await asyncio.get_running_loop().run_in_executor(self._looking, look)

    def turn(self, question: Question) -> Turn:
        """Wait for a turn in a thread of one's own, not the event loop's; whoever has it must end it."""
        entering = asyncio.run_coroutine_threadsafe(self._gate.enter(question.grant.id), self._loop)
        try:
            entering.result(TURN_WITHIN_S)
        except TimeoutError:
            if not entering.cancel():  # it came just now
                self._loop.call_soon_threadsafe(self._gate.leave)
            raise Busy("too many questions wait for an answer") from None
        running = _running(question)
        self.running.add(running)
        turn = Turn(self, question, running)
        self._loop.call_soon_threadsafe(self._look_after, turn)
        return turn

    def asked(self, question: Question, running: Running) -> Result:
        """Ask from a thread of one's own, whose turn it is."""
        return self._run(question, running)

    def ended(self, running: Running) -> None:
        """End a turn that a thread had."""
        running.stop()
        if self.running.remove(running):
            self._loop.call_soon_threadsafe(self._gate.leave)

    def _look_after(self, turn: Turn) -> None:
        """End a turn whose client has stopped reading, from time to time looking whether it has."""
        if turn.is_over:
            return
        if turn.idle_s > self.patience_s():
            turn.end()
        else:
            self._loop.call_later(LOOK_AFTER_S, self._look_after, turn)

    def patience_s(self) -> float:
        """Return for how long a client may take nothing of its answer; may be asked from any thread."""
        return CROWDED_WITHIN_S if self._gate.is_crowded else READ_WITHIN_S

    def close(self) -> None:
        """Take no more."""
        self.running.stop_all()
        for threads in (self._threads, self._looking):
            threads.shutdown(wait=False, cancel_futures=True)

    async def _done(self, threads: ThreadPoolExecutor, running: Running, work: Callable[[], Any]) -> Any:
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, work)
        finally:
            running.stop()  # should nobody wait for it any more

    def _ask(self, question: Question, write: Callable[[Result, Pipe], None], pipe: Pipe, keep_as: str | None) -> None:
        result = self._run(question, pipe.running)
        write(result, pipe)
        if keep_as is not None and (whole := pipe.whole) is not None:
            self.kept.keep(question, keep_as, result, whole)

    def _run(self, question: Question, running: Running) -> Result:
        asked = Budget.of({**question.budget, "external": ()})
        limits = Budget(
            seconds=min(asked.seconds, self._limits.seconds) if "seconds" in question.budget else self._limits.seconds,
            memory_bytes=min(asked.memory_bytes, self._limits.memory_bytes),
            read_bytes=asked.read_bytes,
            is_stopped=running.is_stopped,
        )
        result = run(
            self._lake,
            question.text,
            language=question.language,
            engine="local",
            budget=limits,
            user=question.user,
            sight=question.sight,
            view=question.view,
        )
        running.read_bytes = result.read_bytes
        return result


class Turn:
    """A question that runs in a thread of somebody else's, until its last row is taken or nobody takes any more."""

    def __init__(self, questions: Questions, question: Question, running: Running) -> None:
        self._questions, self._question, self.running = questions, question, running
        self._taken_s: float | None = None  # when a row was last asked for; None while it is made
        self.is_over = False

    def asked(self) -> Result:
        """Ask."""
        return self._questions.asked(self._question, self.running)

    @property
    def idle_s(self) -> float:
        """For how long nobody has asked for a row."""
        since_s = self._taken_s
        return 0.0 if since_s is None else time.monotonic() - since_s

    def rows(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        """Return rows as they are asked for; the turn ends with the last one, or when nobody asks any more."""
        self._taken_s = time.monotonic()
        return self._rows(reader)

    def _rows(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        self._taken_s = None
        try:
            for batch in reader:
                self.running.sent_bytes += batch.nbytes
                self._taken_s = time.monotonic()
                yield batch
                self._taken_s = None
        finally:
            self.end()

    def end(self) -> None:
        """Let others have a turn."""
        if not self.is_over:
            self.is_over = True
            self._questions.ended(self.running)


def _running(question: Question) -> Running:
    return Running(
        question.text[:TEXT_SHOWN],
        question.language,
        question.grant.id,
        question.grant.name,
        question.door,
        question.id,
    )


class Pipe(io.RawIOBase):
    """What a thread writes and the event loop reads, no more than a few pieces ahead."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        running: Running,
        patience_s: Callable[[], float],
        *,
        kept_bytes: int = 0,
    ) -> None:
        super().__init__()
        self._loop, self.running, self._patience_s = loop, running, patience_s
        self._kept_bytes = kept_bytes  # up to which all that was written is held, to be kept
        self._kept: list[bytes] = []
        self._line: deque[bytes] = deque()
        self._room = threading.Semaphore(LINE)
        self._waiting: asyncio.Future[None] | None = None  # who reads, while there is nothing
        self._held = bytearray()
        self.reader: asyncio.Task[Any]
        self.is_given_up = False  # since nobody takes anything; the reader hears of it by being cancelled

    def writable(self) -> bool:
        return True

    def stop(self) -> None:
        """Have the writer end: nobody reads any more."""
        self.running.stop()

    def write(self, data: Any) -> int:
        """Take bytes; Gone if nobody reads them."""
        self._held += data
        while len(self._held) >= PIECE_BYTES:
            self._put(bytes(self._held[:PIECE_BYTES]))
            del self._held[:PIECE_BYTES]
        return len(data)

    def flush(self) -> None:
        """Let go of nothing: pieces go when they are full, and the rest in the end."""

    @property
    def whole(self) -> bytes | None:
        """All that was written, if it is to be kept and not too much."""
        size = sum(map(len, self._kept)) + len(self._held)
        return b"".join([*self._kept, self._held]) if size <= self._kept_bytes else None

    async def pieces(self, task: asyncio.Future[None]) -> AsyncIterator[bytes]:
        """Yield pieces as they come, and the rest once the task that writes has ended; raise what it raised."""
        self.reader = cast("asyncio.Task[Any]", asyncio.current_task())
        task.add_done_callback(lambda _: self._wake())
        while True:
            while self._line:
                piece = self._line.popleft()
                self._room.release()
                yield piece
            if task.done():
                break
            self._waiting = self._loop.create_future()
            await self._waiting
        await task
        if self._held:
            yield Last(self._held)

    def _wake(self) -> None:
        """Tell who reads that there is something, or nothing more; in the event loop."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _give_up(self) -> None:
        if not self.running.is_stopped():
            self.is_given_up = True
            self.reader.cancel()  # it is in the midst of sending

    def _put(self, piece: bytes) -> None:
        if self._kept_bytes:
            self._kept.append(piece)
            if sum(map(len, self._kept)) > self._kept_bytes:
                self._kept, self._kept_bytes = [], 0
        since_s = time.monotonic()
        while not self.running.is_stopped():
            if self._room.acquire(timeout=STOPPED_LOOK_S):
                self._line.append(piece)
                self.running.sent_bytes += len(piece)
                self._loop.call_soon_threadsafe(self._wake)
                return
            if time.monotonic() - since_s > self._patience_s():
                self._loop.call_soon_threadsafe(self._give_up)
                break
        raise Slow("the client reads no more")


def checked_budget(told: Any) -> dict[str, Any]:
    """Return a budget that a client asks for, if it is one."""
    if told is None:
        return {}
    if not isinstance(told, dict):
        raise InvalidInputError("a budget is an object: seconds, memory, read", kind="bad_budget")
    allowed = {name: value for name, value in told.items() if name in ("seconds", "memory", "read")}
    if len(allowed) < len(told):
        raise InvalidInputError("a budget has seconds, memory and read", kind="bad_budget")
    try:
        Budget.of(allowed)
    except (TypeError, ValueError) as error:
        if isinstance(error, TidelakeError):
            raise
        raise InvalidInputError("a budget is numbers, and sizes as 200MB", kind="bad_budget") from error
    return allowed


_Write = Callable[[Result, Pipe], None]


def in_format(form: str, write_rows: Callable[[Any, str, Any], None]) -> _Write:
    """Return a writer of a result's rows in a format."""
    return partial(_written, form, write_rows)


def _written(form: str, write_rows: Callable[[Any, str, Any], None], result: Result, pipe: Pipe) -> None:
    write_rows(result.to_reader(), form, pipe)

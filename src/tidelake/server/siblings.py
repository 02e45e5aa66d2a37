"""Let several processes be one server: they share its ports, and each can be asked what it alone knows.

The first process binds a socket for each of them, over which the system spreads connections; it starts the others, and
starts again those that end. A process hears questions of the others at a socket in a folder that only this user can
open: a line of JSON, and a line that answers it. When the first one ends, however it does, the others see the end of
what they read from it, and stop as at a signal. It does not serve: see ``process``.
"""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from subprocess import PIPE
from typing import Any

from tidelake.errors import InvalidInputError, UnavailableError, redacted
from tidelake.server.buckets import Buckets
from tidelake.server.settings import ServeSettings

ASKED_WITHIN_S = 2.0
STARTED_WITHIN_S = 60.0
LOOK_S = 0.05
FREE_WITHIN_S = 2.0
STOPPED_WITHIN_S = 10.0  # beyond what a server takes to answer what it has begun
AGAIN_AFTER_S = (0.2, 30.0)  # a process that ended is started again: the first time, and at most
LINE_BYTES = 64 << 20
PATH_BYTES = 90  # of a folder for sockets, whose paths are short

log = logging.getLogger("tidelake.server")

Answers = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Siblings:
    """The processes of one server, as one of them sees the others."""

    folder: Path | None = None
    number: int = 0
    count: int = 1

    @property
    def is_first(self) -> bool:
        return self.number == 0

    def ask(self, what: str, **about: Any) -> list[Any]:
        """Return what the others answer; one that does not is left out."""
        others = (at for at in range(self.count) if at != self.number)
        found = [_asked(self._place(at), {"ask": what, **about}) for at in others]
        return [each for each in found if each is not None]

    async def heard(self, what: str, **about: Any) -> list[Any]:
        """Ask as a task of an event loop."""
        if self.count == 1:
            return []
        return await asyncio.get_running_loop().run_in_executor(None, lambda: self.ask(what, **about))

    async def listen(self, answers: Answers) -> asyncio.Server | None:
        """Answer the others from now on, until what is returned is closed."""
        if self.count == 1:
            return None
        place = self._place(self.number)
        place.unlink(missing_ok=True)  # of one that ended

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                told = json.loads(await reader.readline())
                found = answers[told.pop("ask")](**told)
                writer.write(json.dumps({"answer": found}).encode() + b"\n")
                await writer.drain()
            finally:
                writer.close()

        return await asyncio.start_unix_server(answer, place, limit=LINE_BYTES)

    def buckets(self) -> Buckets:
        """Return the buckets that all of them share."""
        return Buckets(None if self.folder is None else self.folder / "buckets")

    def _place(self, number: int) -> Path:
        assert self.folder is not None
        return self.folder / str(number)


def _asked(place: Path, question: Mapping[str, Any]) -> Any:
    """Ask one process; None if it does not answer."""
    try:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(ASKED_WITHIN_S)
            line.connect(str(place))
            line.sendall(json.dumps(question).encode() + b"\n")
            with line.makefile("rb") as reader:
                return json.loads(reader.readline(LINE_BYTES))["answer"]
    except (OSError, ValueError):
        return None


class Family:
    """The other processes, as the first one has them: it starts them, and starts them again."""

    def __init__(self, settings: ServeSettings, listeners: Sequence[socket.socket]) -> None:
        self._settings, self._listeners = settings, listeners
        folder = tempfile.mkdtemp(prefix="tidelake-")
        if len(folder) > PATH_BYTES:
            shutil.rmtree(folder)
            raise InvalidInputError("the path of the temporary folder is too long for a socket", path=folder)
        self.siblings = Siblings(Path(folder), 0, len(listeners))
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._watching: list[asyncio.Task[None]] = []
        self._is_stopping = False

    async def start(self) -> None:
        """Start the others."""
        self._watching = [asyncio.create_task(self._watch(number)) for number in range(1, self.siblings.count)]
        while len(self._running) < len(self._watching):
            await asyncio.sleep(LOOK_S)

    async def gathered(self) -> None:
        """Wait until the others serve; one that does not is started again while the first one serves."""
        until_s = time.monotonic() + STARTED_WITHIN_S
        while len(await self.siblings.heard("there")) < len(self._watching):
            if time.monotonic() > until_s:
                log.warning("not every process serves")
                return
            await asyncio.sleep(LOOK_S)

    async def stop(self) -> None:
        """Have the others answer what they have begun and commit what they took, and wait for their end."""
        self._is_stopping = True
        for listener in self._listeners[1:]:  # or connections would wait there for nobody
            listener.close()
        for each in self._running.values():
            if each.stdin is not None:
                each.stdin.close()
        if self._watching:
            _, late = await asyncio.wait(self._watching, timeout=self._settings.drain_s + STOPPED_WITHIN_S)
            for each in self._running.values() if late else ():
                with suppress(ProcessLookupError):
                    each.kill()
            for task in late:
                task.cancel()

    def close(self) -> None:
        """Take the folder of sockets away."""
        if self.siblings.folder is not None:
            shutil.rmtree(self.siblings.folder, ignore_errors=True)

    async def _watch(self, number: int) -> None:
        wait_s, most_s = AGAIN_AFTER_S
        while not self._is_stopping:
            began_s = time.monotonic()
            child = await self._started(number)
            code = await child.wait()
            del self._running[number]
            if self._is_stopping:
                return
            log.error("a process of the server ended number=%d code=%d; it is started again", number, code)
            if time.monotonic() - began_s > most_s:
                wait_s = AGAIN_AFTER_S[0]
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, most_s)

    async def _started(self, number: int) -> asyncio.subprocess.Process:
        listener = self._listeners[number]
        told = {
            "settings": asdict(self._settings),
            "listener": listener.fileno(),
            "folder": str(self.siblings.folder),
            "number": number,
            "count": self.siblings.count,
        }
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tidelake.server.sibling", stdin=PIPE, pass_fds=[listener.fileno()],
            start_new_session=True,  # a key that stops the first one is not for the others
        )  # fmt: skip
        self._running[number] = child
        assert child.stdin is not None
        child.stdin.write(json.dumps(told).encode() + b"\n")  # not where lists of processes show it
        with suppress(ConnectionError):
            await child.stdin.drain()
        return child


def share_of(settings: ServeSettings) -> ServeSettings:
    """Return what one of a server's processes may hold: its share of what they may all hold.

    A body that fits in no share is refused for good: it would wait for room that never comes.
    """
    if settings.processes == 1:
        return settings
    memory_bytes = max(1 << 20, settings.memory_bytes // settings.processes)
    table_memory_bytes = max(1 << 20, settings.table_memory_bytes // settings.processes)
    return replace(
        settings,
        memory_bytes=memory_bytes,
        table_memory_bytes=table_memory_bytes,
        max_body_bytes=min(settings.max_body_bytes, memory_bytes, table_memory_bytes),
        result_cache_bytes=settings.result_cache_bytes // settings.processes,
    )


def bind(host: str, port: int, count: int) -> list[socket.socket]:
    """Listen at one address with as many sockets as there are processes; port 0 is any that is free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if count > 1:
        check_free(host, port)  # sockets that share a port would share it with another server, too
    found: list[socket.socket] = []
    try:
        for _ in range(count):
            listener = socket.socket(family, socket.SOCK_STREAM)
            found.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if count > 1:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            listener.bind((host, port))
            port = listener.getsockname()[1]
        for listener in found:
            listener.listen(1024)
            listener.setblocking(False)
    except OSError as error:
        for listener in found:
            listener.close()
        raise _cannot_listen("cannot listen", host, port, error) from error
    return found


def check_free(host: str, port: int, what: str = "cannot listen") -> None:
    """Raise if somebody listens at an address, and goes on to: the processes of a killed server end by themselves."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    until_s = time.monotonic() + FREE_WITHIN_S
    while True:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
                return
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > until_s:
                    raise _cannot_listen(what, host, port, error) from error
        time.sleep(LOOK_S)


def _cannot_listen(what: str, host: str, port: int, error: OSError) -> UnavailableError:
    return UnavailableError(
        what, host=host, port=port, reason=redacted(error.strerror or str(error)), kind="cannot_listen"
    )

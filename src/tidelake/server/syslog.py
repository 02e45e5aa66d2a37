"""Listen for syslog on TCP and UDP, and stage what comes.

The protocol has no answers. Over TCP, messages that cannot be stored now are offered again until they are, and
meanwhile no more are read, so that the sender waits; over UDP nobody waits, and what there is no room for is counted
and dropped. Both framings of TCP are taken: a length before each message, or a line end after it. It does not
read messages: see ``protocols.syslog``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from tidelake.catalog.protocol import now_us
from tidelake.errors import TidelakeError
from tidelake.server.call import Load
from tidelake.server.protocols.syslog import MESSAGES, rows_of
from tidelake.server.refusals import RETRY_AFTER_S, failure_of
from tidelake.server.staging import Place, Staging
from tidelake.write.append import AppendReport

TABLE = "default.syslog"
MAX_MESSAGE_BYTES = 64 << 10  # a longer one becomes several, or is cut if it told its length
MAX_WAITING = 20_000  # messages that are not committed, over UDP
GATHER_S = 0.1
MAX_BATCH = 5_000
CONNECTIONS = 1_024
_DIGITS = 6  # of a message's length

log = logging.getLogger("tidelake.server")


class SyslogListener:
    """Takes messages on one port, by TCP and UDP."""

    def __init__(self, staging: Staging, dropped: Callable[[int], None]) -> None:
        self._staging, self._dropped = staging, dropped
        self._waiting: list[tuple[bytes, str]] = []
        self._sending: asyncio.Task[None] | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._is_stopping = False
        self._server: asyncio.Server | None = None
        self._datagrams: asyncio.DatagramTransport | None = None

    async def start(self, host: str, port: int) -> None:
        """Listen."""
        loop = asyncio.get_running_loop()
        self._server = await asyncio.start_server(self._connected, host, port, limit=MAX_MESSAGE_BYTES)
        self._datagrams, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(self), local_addr=(host, port))

    async def stop(self) -> None:
        """Take nothing more, and commit what was taken, as far as that can be done now."""
        self._is_stopping = True
        if self._server is not None:
            self._server.close()
        if self._datagrams is not None:
            self._datagrams.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        if self._sending is not None:
            await self._sending

    def take(self, data: bytes, sender: str) -> None:
        """Take a message that nobody waits for."""
        if len(self._waiting) >= MAX_WAITING:
            self._dropped(1)
            return
        self._waiting.append((data[:MAX_MESSAGE_BYTES], sender))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send_waiting())

    async def _send_waiting(self) -> None:
        """Store what came by UDP, gathered for a moment."""
        while self._waiting:
            if not self._is_stopping:
                await asyncio.sleep(GATHER_S)
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            if not await self._stored(batch):
                self._dropped(len(batch))

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(self._connections) >= CONNECTIONS:
            writer.close()
            return
        self._connections.add(task)
        try:
            await self._read(_Frames(reader), str((writer.get_extra_info("peername") or ("",))[0]))
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # what came before is stored
        finally:
            self._connections.discard(task)
            writer.close()

    async def _read(self, frames: _Frames, sender: str) -> None:
        """Store the messages of a connection, those that come close together at once."""
        while True:
            batch = [await frames.next()]
            until_s = time.monotonic() + GATHER_S
            try:
                while len(batch) < MAX_BATCH and batch[-1] is not None:
                    async with asyncio.timeout(until_s - time.monotonic()):
                        batch.append(await frames.next())
            except TimeoutError:
                pass
            except asyncio.CancelledError:
                await self._stored([(each, sender) for each in batch if each])
                raise
            if messages := [(each, sender) for each in batch if each]:
                await self._stored(messages, keep_trying=True)
            if batch[-1] is None:
                return

    async def _stored(self, messages: list[tuple[bytes, str]], *, keep_trying: bool = False) -> bool:
        """Store messages; where that cannot be done now, later, if there is somebody who waits."""
        rows = rows_of(messages, now_us())
        size = sum(len(data) for data, _ in messages)
        load = Load(TABLE, rows, rows.num_rows, MESSAGES)
        while True:
            error: Any
            try:
                error = await self._staging.offer(Place(TABLE), load, size=size)
                if isinstance(error, AppendReport):
                    return True
            except TidelakeError as refused:
                error = refused
            if not keep_trying or self._is_stopping or not failure_of(error).is_temporary:
                log.warning("syslog messages were not stored count=%d kind=%s", len(messages), error.kind)
                return False
            await asyncio.sleep(RETRY_AFTER_S)


class _Frames:
    """Parts a connection into messages. A read that is cancelled loses nothing."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader, self._held, self._is_over = reader, bytearray(), False

    async def next(self) -> bytes | None:
        """Return the next message; None at the end."""
        while (found := self._take()) is None:
            if self._is_over:
                rest, self._held = bytes(self._held), bytearray()
                return rest or None
            data = await self._reader.read(MAX_MESSAGE_BYTES)
            self._held += data
            self._is_over = not data
        return found

    def _take(self) -> bytes | None:
        """Take a message that is there whole; b'' for nothing between two."""
        held = self._held
        if not held:
            return None
        if held[:1].isdigit():
            space = held.find(b" ", 0, _DIGITS + 1)
            if space > 0 and held[:space].isdigit():
                end = space + 1 + int(held[:space])
                return self._cut(space + 1, end, end) if len(held) >= end else None
            if space < 0 and len(held) <= _DIGITS and held.isdigit():
                return None
        line = held.find(b"\n")
        if 0 <= line <= MAX_MESSAGE_BYTES:
            return self._cut(0, line, line + 1)
        return self._cut(0, MAX_MESSAGE_BYTES, MAX_MESSAGE_BYTES) if len(held) >= MAX_MESSAGE_BYTES else None

    def _cut(self, start: int, end: int, rest: int) -> bytes:
        found = bytes(self._held[start : min(end, start + MAX_MESSAGE_BYTES)])
        del self._held[:rest]
        return found


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, listener: SyslogListener) -> None:
        self._listener = listener

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        """Take one message."""
        if data:
            self._listener.take(data, str(addr[0]))

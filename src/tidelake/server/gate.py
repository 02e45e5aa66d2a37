"""Let so many in at once, and those who wait in turn, whoever asks most.

Everybody who waits stands in the line of their token, and the lines take turns, so that one client with a hundred
questions does not keep another's first one waiting for all of them. It belongs to the thread of an event loop.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidelake.server.refusals import Busy


class Gate:
    """A door for ``at_once`` at a time, with room for ``waiting`` before it."""

    def __init__(self, at_once: int, waiting: int) -> None:
        self._free, self._room = at_once, waiting
        self._lines: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._waiting = 0

    @property
    def is_crowded(self) -> bool:
        """Whether anybody waits; may be asked from any thread."""
        return self._waiting > 0

    @asynccontextmanager
    async def passing(self, who: str) -> AsyncIterator[None]:
        """Wait for one's turn; Busy if too many wait already."""
        await self.enter(who)
        try:
            yield
        finally:
            self.leave()

    async def enter(self, who: str) -> None:
        """Wait for one's turn, which ends with ``leave``."""
        if self._free:
            self._free -= 1
            return
        if self._waiting >= self._room:
            raise Busy("too many questions wait for an answer", waiting=self._waiting)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lines.setdefault(who, deque()).append(turn)
        self._waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # it was let in just now
            raise
        finally:
            self._waiting -= 1

    def leave(self) -> None:
        """Let the next one in."""
        while self._lines:
            who, line = self._lines.popitem(last=False)
            turn = line.popleft()
            if line:
                self._lines[who] = line  # behind the others
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

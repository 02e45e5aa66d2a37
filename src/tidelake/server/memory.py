"""Count the bytes that requests hold, in all and for each table, and refuse what would be too many.

A request takes its bytes before it has them, and gives them back when it is answered. It does not allocate anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from tidelake.server.refusals import Busy


class Budget:
    """So many bytes in all, and so many for each owner. It belongs to one thread."""

    def __init__(self, total: int, each: int) -> None:
        self.total, self.each = total, each
        self.held = 0
        self._by_owner: Counter[Hashable] = Counter()

    def take(self, size: int) -> None:
        """Take bytes, or refuse the request. A request that is alone may have as many as it needs."""
        if self.held and self.held + size > self.total:
            raise Busy("too many bytes are on their way", held=self.held, limit=self.total)
        self.held += size

    def give(self, size: int) -> None:
        """Give bytes back."""
        self.held -= size

    def take_for(self, owner: Hashable, size: int) -> None:
        """Note that bytes which were taken are for an owner, or refuse the request."""
        held = self._by_owner[owner]
        if held and held + size > self.each:
            raise Busy("too many bytes are on their way to the table", held=held, limit=self.each)
        self._by_owner[owner] += size

    def give_for(self, owner: Hashable, size: int) -> None:
        """Note that an owner has them no more."""
        self._by_owner[owner] -= size
        if not self._by_owner[owner]:
            del self._by_owner[owner]

    def of(self, owner: Hashable) -> int:
        """Return how many bytes an owner has."""
        return self._by_owner[owner]

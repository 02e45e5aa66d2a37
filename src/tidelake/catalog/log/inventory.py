"""Name every object that a transaction log knows.

It does not change anything, and does not name the files of the log itself.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelake.catalog.log.reading import LogReader
from tidelake.catalog.log.state import keys_held
from tidelake.catalog.protocol import NamedKeys, TableInfo


class LogInventory(LogReader):
    """The part of the log catalog that knows every object by name."""

    def named_keys(self, *, table_id: str | None = None) -> Iterator[NamedKeys]:
        """Yield every key that a snapshot holds, then every one on the garbage list."""
        with self._journal.lock:
            state = self._journal.refresh()
            if state is None or table_id not in (None, state.info.id):
                return
            held, garbage = keys_held(state), list(state.garbage)
        yield NamedKeys("held", held)
        yield NamedKeys("garbage", garbage)

    def dropped_tables(self, *, before_us: int) -> list[TableInfo]:
        """List the root's table, if it was dropped before a time and not purged since."""
        with self._journal.lock:
            state = self._journal.refresh()
            if state is None or state.purged or state.info.dropped_us is None:
                return []
            return [state.info] if state.info.dropped_us < before_us else []

"""Name the objects of a table's extents, each registered as pending before its first byte.

Extents of most tables are named by their ids. Those of tables whose scopes are folders of segments are numbered if they
were appended or flushed, and are written only where no object is: a name that turns out to be another program's is left
to it, and the next number taken. It does not write.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelake.catalog.protocol import Pending
from tidelake.errors import AlreadyExistsError
from tidelake.handle.table_handle import TableHandle
from tidelake.model.settings import TableSettings
from tidelake.objects import Data, compact_key, extent_key, scope_folder
from tidelake.runtime.processes import process_name

TAKEN_TRIES = 1_000  # names that other programs' objects have


@dataclass(slots=True)
class ExtentName:
    """The key of an extent that is about to be written, and how it is written there."""

    table: TableHandle
    key: str
    is_segment: bool = False
    is_numbered: bool = False
    is_begun: bool = False  # the object under the key is ours, or may be

    @classmethod
    def registered(
        cls, table: TableHandle, settings: TableSettings, extent_id: str, suffix: str, *, is_moved: bool
    ) -> ExtentName:
        """Choose and register a name; rows that were in the table before take no number."""
        if settings.is_segmented and not is_moved:
            return cls(table, _next_segment(table), is_segment=True, is_numbered=True)
        if settings.is_segmented:
            key = compact_key(folder_of(table), extent_id)
        else:
            key = extent_key(table.info.namespace, table.info.name, extent_id, suffix)
        table.catalog.register_pending([Pending(key, table.scope, process_name())])
        return cls(table, key, is_segment=settings.is_segmented)

    def put(self, key: str, data: Data) -> None:
        """Write the object; where the name is taken, under the next number."""
        store = self.table.store
        for left in reversed(range(TAKEN_TRIES if self.is_numbered else 1)):
            self.is_begun = True
            try:
                if self.is_segment:
                    store.put_if_absent(self.key, data)
                else:
                    store.put(self.key, data)
                return
            except AlreadyExistsError:
                self.is_begun = False
                if not left:
                    raise
            self.table.catalog.forget_pending([self.key])
            self.key = _next_segment(self.table)

    def give_up(self) -> None:
        """Leave the object to collection, if there is one."""
        if self.is_begun or not self.is_segment:
            self.table.catalog.release_pending([self.key])
        else:
            self.table.catalog.forget_pending([self.key])


def folder_of(table: TableHandle) -> str:
    """Return the folder of a scope whose extents are segments."""
    return scope_folder(table.info.namespace, table.info.name, table.scope.user)


def job_folder(table: TableHandle, settings: TableSettings, job_id: str) -> str:
    """Return the folder in which a job of several processes writes extents of a table."""
    if settings.is_segmented:
        return f"{folder_of(table)}/job-{job_id}"
    return extent_key(table.info.namespace, table.info.name, f"job-{job_id}", "")


def _next_segment(table: TableHandle) -> str:
    return table.catalog.register_segment(table.scope, folder=folder_of(table), owner=process_name())

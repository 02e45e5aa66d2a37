"""Move a table to another format of extents: new ones have it at once, and those that there are get it here.

Each extent is written again by itself, in a commit of its own, so that a conversion that stops goes on where it was.
Rows, their order and what compaction knows of them stay; readers see the same rows before and after every commit. It
does not join extents: see ``compact``.
"""

from __future__ import annotations

from tidelake.handle.table_handle import TableHandle
from tidelake.maintain.choice import in_time_order
from tidelake.maintain.compact import CompactReport, compact_run
from tidelake.model.settings import extent_format
from tidelake.write.alter import change_settings


def convert(table: TableHandle, format: str) -> CompactReport:
    """Set the format of a table, and write the extents that have another one again; as ``Table.convert`` says."""
    change_settings(table, {"format": format})
    head = table.catalog.head(table.scope)
    report = CompactReport(0, 0, 0, 0, 0, 0, 0, head.sequence)
    listed = table.catalog.extents(table.scope, sequence=head.sequence, stats=())
    for extent in in_time_order(listed):
        if extent.format != extent_format(format):
            report += compact_run(table, table.catalog.head(table.scope), [extent])
    return report

"""Show that a table moved to another format has the same rows, in extents of that format, before, amid and after."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidelake
from tidelake.errors import InvalidInputError
from tidelake.write.alter import change_settings

COLUMNS = {"ts": "timestamp", "n": "long", "line": "string", "event": "dynamic"}


def rows(first: int) -> list[dict[str, object]]:
    return [
        {"ts": 1_700_000_000_000_000 + n, "n": n, "line": f"took {n * 7919 % 1009} ms", "event": {"code": n % 5}}
        for n in range(first, first + 1200)
    ]


def test_extents_of_all_formats_become_those_of_one(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path) as lake:
        table = lake.create_table("logs", COLUMNS, time="ts", flush_age="off", format="tlm2")
        table.append(rows(0))
        change_settings(table.handle, {"format": "tlm3"})
        table.append(rows(1200))
        change_settings(table.handle, {"format": "parquet"})
        table.append(rows(2400))
        table.delete("n >= 100 and n < 130")
        asked = "select n, line, event:code::long as code from logs where n >= 90 order by n"
        wanted = lake.sql(asked).to_arrow()
        mixed = lake.sql("select count(*) as n from logs where has(line, '7') and event:code::long = 2").to_arrow()
        report = table.convert("tlm3")
        assert {extent.format for extent in table.extents()} == {"tlm3"}
        assert (report.runs, report.skipped) == (2, 0)
        assert lake.sql(asked).to_arrow().equals(wanted)
        again = lake.sql("select count(*) as n from logs where has(line, '7') and event:code::long = 2").to_arrow()
        assert again.equals(mixed)
        assert table.convert("tlm3").runs == 0
        table.append(rows(3600))
        assert {extent.format for extent in table.extents()} == {"tlm3"}
        assert table.convert("tlm2").runs == 4
        assert {extent.format for extent in table.extents()} == {"tlm"}
        assert lake.sql(asked.replace("where n", "where n < 3600 and n")).to_arrow().equals(wanted)


def test_a_format_that_is_not_known_is_refused(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path) as lake:
        table = lake.create_table("logs", COLUMNS, time="ts")
        with pytest.raises(InvalidInputError, match="format"):
            table.convert("tape")

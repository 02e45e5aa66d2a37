"""Collect the tables of queries whose driver died before it named them."""

from __future__ import annotations

import pytest

from tests.support.upkeep import check_store
from tidelake import Lake
from tidelake.catalog.names import is_staged_name, staged_name
from tidelake.catalog.protocol import Pending
from tidelake.errors import InvalidInputError
from tidelake.runtime.processes import process_name
from tidelake.write.alter import rename_table
from tidelake.write.create import create_table


def test_a_staged_table_that_nobody_fills_is_collected(lake: Lake) -> None:
    for name in ("obs.logs", staged_name("obs.logs")):
        create_table(lake.catalog, name, {"ts": "timestamp", "n": "long"}, flush_age="off", is_staged="staged" in name)
        table = lake.table(name)
        table.append([{"ts": 1_700_000_000 + n, "n": n} for n in range(10)])
        table.flush()
    assert [is_staged_name(name) for name in lake.tables()] == [False, True]
    assert lake.collect().tables == 0  # which may be at work
    assert lake.collect(abandoned_after="0s", dry_run=True).tables == 1
    assert len(lake.tables()) == 2
    report = lake.collect(abandoned_after="0s")
    assert (report.tables, report.deleted["dropped"].objects) == (1, 1)
    assert lake.tables() == ["obs.logs"]
    check_store(lake)


def test_a_staged_table_is_kept_while_its_writer_lives_and_goes_when_that_is_gone(lake: Lake) -> None:
    name = staged_name("logs")
    create_table(lake.catalog, name, {"ts": "timestamp"}, is_staged=True)
    table = lake.table(name).handle
    mine = Pending(f"data/{table.info.id}/extents/job-{'0' * 32}", table.scope, process_name())
    lake.catalog.register_pending([mine])
    assert lake.collect().tables == 0
    lake.catalog.release_pending([mine.key])
    gone = f"{mine.owner.rpartition(':')[0]}:1"  # a process of the same number that began at another time
    lake.catalog.register_pending([Pending(f"{mine.key[:-1]}1", table.scope, gone)])
    assert lake.collect().tables == 1
    assert lake.tables() == []


def test_nobody_gives_a_table_a_name_that_is_collected(lake: Lake) -> None:
    lake.create_table("logs", {"ts": "timestamp"})
    with pytest.raises(InvalidInputError, match="being made"):
        lake.create_table(staged_name("logs"), {"ts": "timestamp"})
    with pytest.raises(InvalidInputError, match="being made"):
        lake.ingest(staged_name("logs"), [{"ts": 1_700_000_000}])
    with pytest.raises(InvalidInputError, match="being made"):
        rename_table(lake.handle, "logs", staged_name("logs"))
    assert lake.tables() == ["default.logs"]

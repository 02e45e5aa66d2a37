"""Read results as they come: what they hold, what goes wrong on the way, and what they cost."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

import tidelake
from tidelake.cli.output import write_result
from tidelake.errors import QueryError, UnavailableError
from tidelake.lake import Lake
from tidelake.model.schema import JSON_FIELD
from tidelake.query.engines.local import BATCH_ROWS, PICKED_ROWS

ROWS = 16 * BATCH_ROWS
LATE = "select n * 9223372036854775807 as n from obs.logs"  # too much for the last row alone


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Yield a lake with a table of several batches, and one with dynamic values."""
    with tidelake.connect(tmp_path_factory.mktemp("streams") / "lake") as lake:
        numbers = [0] * (ROWS - 1) + [2]
        times = pa.array(range(ROWS), pa.timestamp("us", tz="UTC"))
        logs = lake.create_table("obs.logs", {"ts": "timestamp", "n": "long"}, flush_age="off")
        logs.append(pa.table({"ts": times, "n": numbers}))
        tags = lake.create_table("obs.tags", {"ts": "timestamp", "tags": "dynamic"}, flush_age="off")
        tags.append([{"ts": n, "tags": {"az": "a", "k": [n, None]}} for n in range(3)])
        yield lake


@pytest.mark.parametrize(
    "text", ["select * from obs.logs", "select n, count(*) as c from obs.logs group by n order by n"]
)
def test_a_stream_has_the_rows_of_the_table(lake: Lake, text: str) -> None:
    result = lake.sql(text)
    assert result.to_reader().read_all().equals(result.to_arrow())
    assert result.to_reader().read_all().equals(result.to_arrow())
    assert pa.table(lake.sql(text)).equals(result.to_arrow())


def test_a_stream_comes_in_batches_and_can_be_left_early(lake: Lake) -> None:
    reader = lake.sql("select * from obs.logs").to_reader()
    assert 0 < reader.read_next_batch().num_rows <= PICKED_ROWS
    assert any(thread.name == "tidelake-query" for thread in threading.enumerate())
    del reader
    assert not any(thread.name == "tidelake-query" for thread in threading.enumerate())
    lake.sql("select * from obs.logs").to_reader()  # not even begun
    assert not any(thread.name == "tidelake-query" for thread in threading.enumerate())


def test_dynamic_columns_of_a_result_are_marked_and_no_others(lake: Lake) -> None:
    kql = "obs.tags | extend az = tags.az, bag = bag_pack('a', 1), text = tostring(tags), n = toint(tags.k[0])"
    sql = "select *, tags:az as az, cast(tags as string) as text from obs.tags"
    for result, dynamic in ((lake.kql(kql), {"tags", "az", "bag"}), (lake.sql(sql), {"tags", "az"})):
        for schema in (result.to_reader().schema, result.to_arrow().schema):
            assert {field.name for field in schema if field.metadata == JSON_FIELD} == dynamic
    unpacked = lake.kql("obs.tags | evaluate bag_unpack(tags)")
    assert {field.name for field in unpacked.to_reader().schema if field.metadata == JSON_FIELD} == {"k"}


def test_whole_numbers_beyond_64_bits_are_unpacked_as_reals(lake: Lake) -> None:
    text = 'print bag = parse_json(\'{"big": 12345678901234567890, "n": 1}\') | evaluate bag_unpack(bag)'
    assert lake.kql(text).to_arrow().to_pylist() == [{"big": 12345678901234567890.0, "n": 1}]


def test_what_goes_wrong_late_is_our_error(lake: Lake) -> None:
    with pytest.raises(QueryError, match="too large for its type"):
        lake.sql(LATE).to_reader().read_all()
    with pytest.raises(QueryError, match="too large for its type"):
        lake.sql(LATE).to_arrow()


class Failing:
    """Rows of which the second batch cannot be read."""

    def to_reader(self) -> pa.RecordBatchReader:
        def batches() -> Iterator[pa.RecordBatch]:
            yield pa.record_batch({"n": range(100_000)})
            raise QueryError("out of luck")

        return pa.RecordBatchReader.from_batches(pa.schema([("n", pa.int64())]), batches())


def test_a_file_that_is_not_finished_is_not_there(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("precious")
    for name in ("new.ndjson", "new.json", "old.csv", "new.parquet", "new.arrow"):
        with pytest.raises(QueryError, match="out of luck"):
            write_result(Failing(), name.partition(".")[2], str(tmp_path / name), Console())
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"old.csv": "precious"}
    write_result(lake.sql("select 1 as n"), "csv", str(tmp_path / "old.csv"), Console())
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"old.csv": '"n"\n1\n'}


def test_a_file_is_written_where_a_link_leads(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link.csv").symlink_to(tmp_path / "real" / "out.csv")
    write_result(lake.sql("select 1 as n"), "csv", str(tmp_path / "link.csv"), Console())
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real" / "out.csv").read_text() == '"n"\n1\n'


def test_a_budget_of_time_holds_in_a_stream_but_not_for_who_reads_it(lake: Lake) -> None:
    endless = "select count(*) from obs.logs a cross join obs.logs b where a.n + b.n > 9"
    with pytest.raises(UnavailableError, match="took longer") as caught:
        lake.sql(endless, budget={"seconds": 0.5}).to_reader().read_all()
    assert caught.value.kind == "time_budget"
    reader = lake.sql("select * from obs.logs", budget={"seconds": 30}).to_reader()
    assert sum(batch.num_rows for batch in reader) == ROWS


PEAK = """if True:
    import json, resource, sys
    import tidelake
    from rich.console import Console
    from tidelake.cli.output import write_result

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    with tidelake.connect(sys.argv[1], create=False) as lake:
        wide = "select n, repeat('x', 500) as s, ts from obs.logs"
        budget = {"memory": "128MB"}
        write_result(lake.sql(f"{wide} limit 100000", budget=budget), "ndjson", "/dev/null", Console())
        before = peak()
        for form in ("ndjson", "arrow"):
            write_result(lake.sql(f"{wide} union all {wide}", budget=budget), form, "/dev/null", Console())
        print(json.dumps({"grown": peak() - before}))
"""


def test_a_result_larger_than_the_allowed_memory_is_written_in_little(lake: Lake) -> None:
    ran = subprocess.run([sys.executable, "-c", PEAK, lake.where], capture_output=True, text=True, check=True)
    result_bytes = 2 * ROWS * 500
    assert result_bytes > 2 * 128e6
    assert json.loads(ran.stdout)["grown"] < result_bytes / 3

"""Small questions, answered by statements that are kept: as larger ones are, at every snapshot, and nothing is held."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tidelake import Lake
from tidelake.errors import CorruptError, QueryError, UnavailableError
from tidelake.query.budget import Budget
from tidelake.query.engines import small
from tidelake.query.session import run

START = datetime(2026, 1, 1, tzinfo=UTC)
QUESTIONS = (
    "select service, count(*) c, avg(value) a, sum(n) s, min(ts) t from logs group by service order by service",
    "select n, service from logs where n between 3 and 9 and service in ('s1', 's2') order by n desc limit 4",
    "with some as (select * from logs where value > 5) select max(n) - min(n) as d, count(distinct service) from some",
    "select date_trunc('minute', ts) m, sum(case when n > 50 then 1 else 0 end) c from logs group by 1 order by 1",
    "select distinct length(service) s, n is null as is_null from logs order by s",
    "select * from logs where service is null order by n",
    "select service from logs where n > 1000",
)
KQL = (
    "logs | summarize c = count(), p = percentile(value, 90) by bin(ts, 1m), service | order by ts asc, service asc",
    "logs | where service startswith 's' and n < 70 | top 5 by value desc | project ts, service, value",
    "logs | summarize total = sum(value) by service | where total > 10 | order by service asc",
)


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {
            "ts": START + timedelta(seconds=n),
            "service": f"s{n % 3}" if n % 7 else None,
            "value": n % 11 / 4,
            "n": n,
        }
        for n in range(first, first + count)
    ]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelake.connect(tmp_path / "lake", upkeep=False) as opened:
        columns = {"ts": "timestamp", "service": "string", "value": "real", "n": "long"}
        opened.create_table("logs", columns, time="ts").append(rows(0, 100))
        yield opened


def asked(lake: Lake, text: str, language: Any = "sql") -> tuple[pa.Table, bool]:
    """Return a question's rows, and whether it passed for a small one."""
    result = run(lake, text, language=language, engine="local")
    found = result.to_arrow()
    return found, result._prepared.known.get("small", False)


def test_small_questions_are_answered_as_others_are(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for language, texts in (("sql", QUESTIONS), ("kql", KQL)):
        for text in texts:
            first, is_small = asked(lake, text, language)
            again, _ = asked(lake, text, language)
            with monkeypatch.context() as patched:
                patched.setattr(small, "ROWS", -1)
                other, _ = asked(lake, text, language)
            assert is_small or "group" not in text, text  # what only picks columns is the scan's own answer
            assert first.schema.equals(other.schema, check_metadata=True), text
            assert first.to_pylist() == again.to_pylist() == other.to_pylist(), text


def test_a_statement_that_is_kept_reads_the_snapshot_of_each_question(lake: Lake) -> None:
    text = "select count(n) c, max(n) m, avg(value) a from logs where n >= 0"
    table = lake.table("logs")
    for before, size in ((100, 101), (101, 120), (120, 3_000)):
        table.append(rows(before, size - before))
        assert asked(lake, text)[0].to_pylist()[0]["m"] == size - 1
        table.flush()
        assert asked(lake, text)[0].to_pylist()[0]["c"] == size
    table.append([{"ts": START, "n": 5, "service": "s9", "value": 1.0, "extra": "new"}])  # a wider schema
    found, _ = asked(lake, "select count(extra) e, count(*) c from logs where n = 5")
    assert found.to_pylist() == [{"e": 1, "c": 2}]
    table.delete("n < 3000 and n <> 5")
    assert asked(lake, "select n, count(*) c from logs group by n")[0].to_pylist() == [{"n": 5, "c": 2}]


def test_what_is_not_bounded_by_its_rows_is_no_small_question(lake: Lake) -> None:
    for text in (
        "select count(*) from logs a join logs b on a.n = b.n",
        "select count(*) from logs a, logs b",
        "select n, repeat(service, 3) from logs order by n",
        "select n, row_number() over (order by n) from logs",
        "select explode(array(1, 2)) as x, n from logs",
        "select n from logs union all select n from logs",
        "select n from logs where n in (select 5)",
        "select service || service as x, count(*) from logs group by 1",
    ):
        assert not asked(lake, text)[1], text


def test_what_the_engine_complains_about_is_worded_as_ever(lake: Lake) -> None:
    for _ in range(2):
        with pytest.raises(QueryError, match="too large for its type"):
            lake.sql("select sum(n * 4611686018427387904) as x, service from logs group by service").to_arrow()
    assert asked(lake, "select count(*) c from logs where n > 98 group by service")[0].num_rows == 1


def test_a_scan_that_fails_is_told_and_the_next_question_is_answered(tmp_path: Path) -> None:
    text = "select service, sum(n) s from logs group by service order by service"
    with tidelake.connect(tmp_path / "lake", upkeep=False) as lake:
        table = lake.create_table("logs", {"ts": "timestamp", "service": "string", "n": "long"}, time="ts")
        table.append([{"ts": START, "service": "a", "n": 1}])
        table.flush()
        (extent,) = table.extents()
        path = next((tmp_path / "lake").rglob(Path(extent.key).name))
        whole = path.read_bytes()
        middle = len(whole) // 3
        path.write_bytes(
            whole[:middle] + bytes(byte ^ 255 for byte in whole[middle : middle + 64]) + whole[middle + 64 :]
        )
    with tidelake.connect(tmp_path / "lake", upkeep=False) as lake:
        with pytest.raises(CorruptError):
            lake.sql(text, engine="local").to_arrow()
        path.write_bytes(whole)
        assert lake.sql(text, engine="local").to_arrow().to_pylist() == [{"service": "a", "s": 1}]


def test_a_kept_statement_holds_nothing_of_what_it_read(lake: Lake) -> None:
    assert asked(lake, "select service, count(*) c from logs group by service")[1]
    held = [each for several in small._statements()._free.values() for each in several]
    assert held
    assert {each.slot.stream for each in held} == {None}


def test_many_threads_ask_small_questions_while_rows_come(lake: Lake) -> None:
    table = lake.table("logs")
    wrong: list[Any] = []
    is_over = threading.Event()

    def ask() -> None:
        last = 0
        while not is_over.is_set():
            found = asked(lake, "select count(*) c, min(n) l, max(n) m from logs where value >= 0")[0].to_pylist()[0]
            if found["m"] + 1 != found["c"] or found["l"] != 0 or found["c"] < last:
                wrong.append(found)
            last = found["c"]

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for each in threads:
        each.start()
    for first in range(100, 200, 10):
        table.append(rows(first, 10))
    is_over.set()
    for each in threads:
        each.join()
    assert not wrong


def test_statements_are_kept_up_to_a_number(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small, "STATEMENTS", 5)
    for n in range(20):
        assert asked(lake, f"select sum(value) c from logs where n > {n} and value > 0")[1]
    assert small._statements()._count <= 5
    assert sum(map(len, small._statements()._free.values())) == small._statements()._count


def test_a_small_question_that_was_stopped_does_not_run(lake: Lake) -> None:
    budget = Budget(is_stopped=lambda: True)
    with pytest.raises(UnavailableError, match="stopped"):
        run(lake, "select service, count(*) c from logs group by service", engine="local", budget=budget).to_arrow()

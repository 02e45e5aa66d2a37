"""Small questions, answered by statements that are kept: as larger ones are, at every snapshot, and nothing is held."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import inf, nan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tidelake import Lake
from tidelake.errors import CorruptError, NotFoundError, QueryError, UnavailableError
from tidelake.query.budget import Budget
from tidelake.query.engines import small
from tidelake.query.seen import Sight, View
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


def test_many_rows_that_are_only_counted_are_a_small_question_once_what_they_have_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small, "ROWS", 40)
    texts = (
        "events | where e.id == 3 | count",
        "events | where e.name == 'n1' | count",
        "events | summarize n = count() by c = tostring(e.name) | order by c asc",
        "events | summarize n = count(), top = max(toreal(e.id)) by c = tostring(e.id) | order by c asc",
    )
    mixed = ("n0", "n1", 7, 2.5, True, None, {"a": [1, 2]})
    with tidelake.connect(tmp_path / "lake", upkeep=False) as lake:
        table = lake.create_table("events", {"ts": "timestamp", "e": "dynamic"}, time="ts", format="tlm3")

        def append(first: int, count: int) -> None:
            values = [{"id": n % 5, "name": mixed[n % len(mixed)]} for n in range(first, first + count)]
            table.append([{"ts": START + timedelta(seconds=first + at), "e": value} for at, value in enumerate(values)])

        def agree(*, are_small: bool) -> None:
            for text in texts:
                asked(lake, text, "kql")
                found, is_small = asked(lake, text, "kql")
                plain = run(lake, text, language="kql", engine="local", prune=False).to_arrow()
                assert found.num_rows, text
                assert found.to_pylist() == plain.to_pylist(), text
                assert is_small or not are_small, text

        append(0, 700)
        table.flush()
        agree(are_small=True)
        append(700, 35)  # hot rows, beside what is kept
        agree(are_small=True)
        append(735, 200)
        agree(are_small=False)
        table.flush()
        table.delete("ts < '2026-01-01T00:00:10Z'")
        agree(are_small=False)


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


def test_what_is_kept_of_a_question_is_of_the_schema_it_is_asked_at(lake: Lake) -> None:
    text = "select n, count(*) c from logs where n > 98 group by n order by n"
    table = lake.table("logs")
    for _ in range(3):
        found, is_small = asked(lake, text)
        assert is_small
        assert found.to_pylist() == [{"n": 99, "c": 1}]
    before = found.schema
    table.append([{"ts": START, "service": "s", "value": 1.0, "n": 99.5}])  # which makes n a real
    for _ in range(3):
        found, is_small = asked(lake, text)
        assert is_small
        assert found.to_pylist() == [{"n": 99.0, "c": 1}, {"n": 99.5, "c": 1}]
        assert not found.schema.equals(before)
    past = run(lake, text, engine="local", view=View(snapshots={"": table.snapshot.sequence - 1})).to_arrow()
    assert past.schema.equals(before)


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
    assert {each.slot.rows for each in held} == {None}


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


COLUMNS = {
    "ts": "timestamp", "at": "timestamp_ntz", "day": "date", "i": "int", "n": "long", "value": "real", "ok": "bool",
    "text": "string", "price": "decimal(12, 3)",
}  # fmt: skip


def test_values_of_every_type_come_out_of_a_kept_statement_as_out_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = [
        {"ts": START, "at": datetime(1, 1, 1), "day": date(9999, 12, 31), "i": -(2**31), "n": 2**63 - 1, "value": nan,
         "ok": False, "text": "", "price": Decimal("-1.005")},
        {"ts": datetime(1677, 1, 1, tzinfo=UTC), "at": datetime(2026, 3, 29, 2, 30, 0, 1), "day": date(1, 1, 1),
         "i": 2**31 - 1, "n": -(2**63), "value": -inf, "ok": True, "text": "é\0\u2028", "price": Decimal(0)},
        {"ts": datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC), "value": -0.0},
        {"ts": START},
    ]  # fmt: skip
    texts = (
        *(f"select {name}, count(*) c from odd group by {name} order by {name}" for name in COLUMNS),
        *(f"select min({name}) l, max({name}) m from odd where n is null or n > 0" for name in COLUMNS),
        *(f"select {name}, count(*) c from odd where n = 17 group by {name}" for name in COLUMNS),  # no rows
        "select text, min(n) as x, max(n) as X, min(i) as x, max(ok) x_1 from odd group by text order by text",
        "select text, min(n) as x, max(n) as X from odd group by text order by text",
        "select i, sum(n) s, sum(price) p, avg(value) a from odd where n is null group by i",
        "select ok, ts from odd where value is null order by ts limit 3",
    )
    with tidelake.connect(tmp_path / "lake", upkeep=False) as lake:
        lake.create_table("odd", COLUMNS, time="ts").append(odd)
        kql = [(f"odd | summarize c = count() by {name} | order by {name} asc", "kql") for name in COLUMNS]
        for text, language in (*((text, "sql") for text in texts), *kql):
            found = [asked(lake, text, language)[0] for _ in range(2)]
            with monkeypatch.context() as patched:
                patched.setattr(small, "ROWS", -1)
                other, _ = asked(lake, text, language)
            for each in found:
                assert each.schema.equals(other.schema, check_metadata=True), text
                assert repr(each.to_pylist()) == repr(other.to_pylist()), text  # of which no number equals itself
        assert small._statements()._count > 0


def test_many_rows_and_few_come_alike_out_of_one_statement(lake: Lake) -> None:
    text = "select n, count(*) c, max(service) s from logs where value >= 0 group by n order by n"
    for size in (100, 3_000, 3_001):
        lake.table("logs").append(rows(asked(lake, text)[0].num_rows, size - asked(lake, text)[0].num_rows))
        expected = [{"n": each["n"], "c": 1, "s": each["service"]} for each in rows(0, size)]
        assert [asked(lake, text)[0].to_pylist() for _ in range(2)] == [expected, expected]
    lake.table("logs").delete("n >= 2")
    assert asked(lake, text)[0].to_pylist() == [{"n": n, "c": 1, "s": f"s{n}" if n else None} for n in range(2)]


def test_a_kept_plan_is_of_the_snapshot_the_table_and_the_user_that_are_asked_about(tmp_path: Path) -> None:
    asks = ["select count(*) c, max(n) m from logs", "select n, count(*) c from logs where n >= 0 group by n"]

    def seen(lake: Lake, **about: Any) -> list[Any]:
        return [run(lake, text, engine="local", **about).to_arrow().to_pylist() for text in asks for _ in range(2)]

    def expected(n: int, count: int) -> list[Any]:
        return [[{"c": count, "m": n}]] * 2 + [[{"n": n, "c": count}]] * 2

    columns = {"ts": "timestamp", "n": "long"}
    with tidelake.connect(tmp_path / "lake", upkeep=False) as lake:
        for namespace, n in (("default", 1), ("other", 2)):
            table = lake.create_table(f"{namespace}.logs", columns, time="ts", flush_age="off")
            table.append([{"ts": START, "n": n}])
            table.flush()
        other = Sight(namespace="other")
        assert seen(lake) == expected(1, 1)
        assert seen(lake, sight=other) == expected(2, 1)
        assert seen(lake) == expected(1, 1)
        with pytest.raises(NotFoundError):
            seen(lake, sight=Sight(reaches=lambda name: name != "default.logs"))
        before = lake.table("logs").snapshot.sequence
        lake.table("logs").append([{"ts": START, "n": 1}])
        assert seen(lake) == expected(1, 2)
        assert seen(lake, view=View(snapshots={"default.logs": before})) == expected(1, 1)
        assert seen(lake) == expected(1, 2)
        assert seen(lake, view=View(start_ns=0, end_ns=1)) == [[{"c": 0, "m": None}]] * 2 + [[]] * 2
        lake.drop_table("logs")
        with pytest.raises(NotFoundError):
            seen(lake)
        table = lake.create_table("logs", columns, time="ts", flush_age="off")
        table.append([{"ts": START, "n": 3}])
        table.flush()
        assert seen(lake) == expected(3, 1)
        table.append([{"ts": START, "n": 3, "extra": 1}])
        assert seen(lake) == expected(3, 2)
        table.compact()
        assert seen(lake) == expected(3, 2)
        users = lake.create_table("other.mine", columns, time="ts", scope="user", flush_age="off")
        asks[:] = [text.replace("logs", "other.mine") for text in asks]
        for user, n in (("ann", 4), ("bob", 5)):
            users.user(user).append([{"ts": START, "n": n}])
            users.user(user).flush()
        for user, n in (("ann", 4), ("bob", 5), ("ann", 4)):
            assert seen(lake, user=user) == expected(n, 1)


def test_a_kept_plan_holds_no_snapshot(lake: Lake) -> None:
    text = "select service, count(*) c from logs group by service"
    lake.table("logs").flush()
    for _ in range(2):
        kept = run(lake, text, engine="local")._prepared
    plans = [*(kept.apart or kept).plans.values()]
    assert plans
    assert {each.held for each in plans} == {None}

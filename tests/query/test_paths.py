"""Show that paths read alone answer as whole values do, in extents of every format, hot rows, and all of them mixed."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import tidelake
from tidelake import Lake
from tidelake.query.session import run
from tidelake.scan import extents
from tidelake.write.alter import change_settings

ROWS = 3_000


def rows(chance: random.Random, count: int) -> list[dict[str, Any]]:
    return [{"ts": 1_700_000_000_000_000 + n * 1000, "n": n, "event": event(chance, n)} for n in range(count)]


def event(chance: random.Random, n: int) -> dict[str, Any]:
    """Make an event with paths that are always there, sometimes there, of several types, nested, and null."""
    found: dict[str, Any] = {
        "id": n,
        "level": chance.choice(["INFO", "WARN", "ERROR"]),
        "http": {"status": chance.choice([200, 404, 500]), "took": chance.random() * 100, "path": f"/items/{n % 40}"},
        "mixed": chance.choice([1, "1", 1.5, True, None, [1], {"x": 1}, 10**20, "a b"]),
        "message": f"worker {n % 7} finished job {n} in {chance.choice(['Berlin', 'Oslo'])}",
    }
    if n % 3 == 0:
        found["user"] = {"name": chance.choice(["ann", "bo", "Zoë"]), "tags": ["x", n]}
    if n % 5 == 0:
        found["http.status"] = 999
    if n % 7 == 0:
        found["opt"] = None if n % 2 else {}
    return found


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    made = tidelake.connect(str(Path(tmp_path_factory.mktemp("lake"))))
    for name in ("tlm2", "tlm3", "parquet", "mixed"):
        chance = random.Random(3)
        table = made.create_table(
            name, {"ts": "timestamp", "n": "long", "event": "dynamic"}, format="tlm2" if name == "mixed" else name
        )
        whole = rows(chance, ROWS)
        if name != "mixed":
            table.append(whole)
            table.flush()
            continue
        table.append(whole[:1000])
        table.flush()
        change_settings(table.handle, {"format": "tlm3"})
        table.append(whole[1000:2500])
        table.flush()
        table.append(whole[2500:])  # which stay hot
    return made


KQL = (
    "T | where event.level == 'ERROR' | summarize count()",
    "T | where event.http.status == 500 and event.level != 'INFO' | summarize count(), max(n)",
    "T | summarize count() by tostring(event.mixed)",
    "T | summarize count() by tostring(event.http.status), tostring(event.level)",
    "T | summarize max(toreal(event.http.took)), avg(todouble(event.id)), dcount(tostring(event.user.name))",
    "T | where event.message has 'Berlin' | count",
    "T | where event.message contains 'ERLI' and event.user.name == 'ann' | project n, event.user | order by n asc",
    "T | where isnotnull(event.user) | summarize count() by tostring(event.user.name)",
    "T | where isnull(event.opt) | count",
    "T | where event.mixed == 1 | count",
    "T | where event.mixed > 0 | count",
    "T | extend k = tolong(event.http.status) | summarize count() by k",
    "T | where n < 50 | project n, event.mixed, event.opt, event.user.tags, event.nothing | order by n asc",
    "T | summarize count() by event.level",
    "T | summarize n = count(), least = min(tostring(event.mixed)), most = max(todouble(event.mixed))"
    " by isnull(event.mixed)",
    "T | where event.level startswith 'W' or event.level has 'info'"
    " | summarize n = count() by strlen(tostring(event.level)) | where n > 3",
    "T | where event.nothing == 'x' | count",
    "T | where event.http.took > 50.0 | count",
    "T | summarize countif(event.level == 'ERROR'), dcount(tostring(event.level))",
    "T | where event.level == 'WARN' and ts < datetime(2023-11-14 22:13:21) | count",
    "T | where n < 20 | project n, event | order by n asc",
    "T | where event.user.tags[0] == 'x' | count",
    "T | where event.level == 'WARN' | take 5 | count",
    "T | join kind=inner (T | where event.level == 'ERROR' | project id = tolong(event.id)) on $left.n == $right.id"
    " | count",
    "union (T | where event.http.status == 404 | project a = tostring(event.level)),"
    " (T | project a = tostring(event.user.name)) | summarize count() by a",
)
SQL = (
    "select event.level l, count(*) from T where event.http.status = 500 group by 1",
    "select event:level::string l, min(event:http.took::double), max(event:id::int) from T group by all",
    "select count(*) from T where event.message like '%Oslo%' and event.user.name is not null",
    "select event.mixed m, count(*) from T group by 1",
    "select n, event.http, event['user']['name'] from T where n < 30",
    "select count(*) from T where event.mixed is null",
    "select count(distinct event.http.path::string) from T where event.level in ('WARN', 'ERROR')",
    "select a.n from T a where a.event.level = 'ERROR'"
    " and exists (select 1 from T b where b.n = a.n and b.event.http.status = 404)",
    "select event.level l, count(*) c, count(1) d, min(event.level::string) from T group by 1 having count(*) > 2",
    "select event.opt o, count(event.opt) c, count(*) d, sum(1) e from T group by 1",
    "select count(*) from T where event.level = 'nothing'",
    "select distinct event.level::string from T",
    "select count(*) + 1, max(event.http.status::int) from T where event.http.status::int < 500",
    "select count(*) filter (where event.level = 'WARN') from T",
    "select count(*) over (partition by event.level) c from T",
    "select count(*) from (select event.level::string l from T) where l >= 'J'",
    "select event.level::string from T where event.level::string > 'J' limit 100000",
    "select x.l, count(*) from (select event.level l, n from T where n > 100) x group by 1",
)


def answers(lake: Lake, text: str, language: str, *, prune: bool = True) -> list[str]:
    result = run(lake, text, language=language, engine="local", prune=prune)  # type: ignore[arg-type]
    return sorted(map(repr, result.to_arrow().to_pylist()))


@pytest.mark.parametrize(("language", "text"), [*(("kql", each) for each in KQL), *(("sql", each) for each in SQL)])
def test_paths_read_alone_answer_as_whole_values_do(lake: Lake, language: str, text: str) -> None:
    def of(name: str) -> str:
        return text.replace("T |", f"{name} |").replace("from T", f"from {name}")

    wanted = answers(lake, of("tlm2"), language, prune=False)
    assert wanted
    if "take" not in text:
        for name in ("tlm2", "tlm3", "parquet", "mixed"):
            assert answers(lake, of(name), language) == wanted, name
            assert answers(lake, of(name), language) == wanted, f"{name}, once it is kept"


def test_a_path_is_asked_of_the_scan_and_not_its_column(lake: Lake) -> None:
    result = run(lake, "select event.level, count(*) from tlm3 group by 1", engine="local")
    whole = run(lake, "select event from tlm3", engine="local")
    (scan,), (around,) = result._scans, whole._scans
    assert scan.plan.question.columns == ("tide:event:level:plain", "tide:event:level:json_but_plain")
    assert scan.byte_size * 5 < around.byte_size


@pytest.mark.parametrize(
    ("text", "is_counted"),
    [
        ("tlm3 | where event.level == 'WARN' | count", True),
        ("tlm3 | summarize count() by tostring(event.http.status)", True),
        ("tlm3 | summarize count() by tostring(event.level), rand() > 0.5", False),
        ("tlm3 | summarize count(), sum(toreal(event.http.took))", False),
        ("tlm3 | summarize count() by tostring(event.level), tostring(event.http.status)", False),
        ("tlm3 | summarize count() by tostring(event.level), n", False),
    ],
)
def test_equal_rows_are_one_where_only_their_number_matters(lake: Lake, text: str, is_counted: bool) -> None:
    result = run(lake, text, language="kql", engine="local")
    (scan,) = result._scans
    assert (scan.plan.question.counted is not None) is is_counted
    given = sum(batch.num_rows for batch in extents.scan(scan.plan, scan.table.footers))
    assert given == (ROWS if not is_counted else 1 if "WARN" in text else 4)


def test_compaction_moves_a_table_to_the_third_body(tmp_path: Path) -> None:
    lake = tidelake.connect(str(tmp_path))
    table = lake.create_table("events", {"ts": "timestamp", "n": "long", "event": "dynamic"}, flush_age="off")
    whole = rows(random.Random(4), 400)
    for start in range(0, 400, 100):
        table.append(whole[start : start + 100])
        table.flush()
    before = answers(lake, "select n, event from events", "sql")
    change_settings(table.handle, {"format": "tlm3"})
    table.compact()
    assert {extent.format for extent in table.extents()} == {"tlm3"}
    assert answers(lake, "select n, event from events", "sql") == before
    assert answers(lake, "events | where event.level == 'WARN' | count", "kql", prune=False) == answers(
        lake, "events | where event.level == 'WARN' | count", "kql"
    )


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("t | where n < 2 | project n, x = tolong(d.a), y = tolong(d.A)", [(0, 0, 10), (1, 1, 11)]),
        ("t | summarize count() by x = tostring(d.a), y = tostring(d.A) | sort by x asc, y asc | take 2",
         [("0", "10", 100), ("0", "12", 100)]),
        ("t | where n < 2 | project n, x = d['a:b'], y = ['d:a'].b", [(0, "100", "1000"), (1, "101", "1001")]),
        ("t | where n < 2 and d.a contains '1' | project x = tostring(d.A), y = tostring(['D:A'].b)", [("11", "x")]),
    ],
)  # fmt: skip
def test_paths_whose_names_are_nearly_alike_are_told_apart(
    tmp_path: Path, text: str, wanted: list[tuple[Any, ...]]
) -> None:
    columns = {"ts": "timestamp", "n": "long", "d": "dynamic", "d:a": "dynamic", "D:A": "dynamic"}
    with tidelake.connect(tmp_path, upkeep=False) as lake:
        lake.create_table("t", columns).append(
            [
                {
                    "ts": n,
                    "n": n,
                    "d": {"a": n % 2, "A": n % 4 + 10, "a:b": n % 2 + 100},
                    "d:a": {"b": n % 7 + 1000},
                    "D:A": {"b": "x"},
                }
                for n in range(400)
            ]
        )
        assert [tuple(row.values()) for row in lake.kql(text).to_arrow().to_pylist()] == wanted

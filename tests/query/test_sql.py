"""Ask lakes in SQL: answers, what was read for them, and what is said to a mistake."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars
import pyarrow as pa
import pytest

import tidelake
from tidelake import Lake, QueryError, UnavailableError
from tidelake.query import session
from tidelake.query.session import run


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with tidelake.connect(tmp_path_factory.mktemp("lake")) as lake:
        logs = lake.create_table(
            "obs.logs",
            {
                "ts": "timestamp",
                "service": "string",
                "status": "int",
                "message": "string",
                "attributes": "dynamic",
            },
            time="ts",
        )
        for day in range(1, 5):
            rows = [
                {
                    "ts": f"2026-01-{day:02}T00:00:{second:02}Z",
                    "service": ("auth", "web")[second % 2],
                    "status": 200 + second * day,
                    "message": f"request {day}-{second}" + (" timeout" if second % 10 == 0 else ""),
                    "attributes": {"http": {"method": ("GET", "PUT")[second % 2]}, "day": day},
                }
                for second in range(60)
            ]
            logs.append(rows)
            logs.flush()
        logs.append([{"ts": "2026-01-05T00:00:00Z", "service": "web", "status": 1, "message": "hot"}])
        yield lake


def test_sql_groups_what_pruning_left(lake: Lake) -> None:
    result = lake.sql(
        "select service, count(*) from obs.logs where ts >= '2026-01-04' and status > 300 group by 1 order by 1"
    )
    assert result.to_arrow().to_pydict() == {"service": ["auth", "web"], "count(*)": [17, 17]}
    (scan,) = result._scans
    assert [task.extent.row_count for task in scan.plan.tasks] == [60]
    assert "time bounds" in result.explain()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select nope from obs.logs", "there is no column 'nope'; there are ts, service"),
        ("select l.servic from obs.logs l", "there is no column 'servic', did you mean 'service'?"),
        ("select * from obs.log", "there is no table 'obs.log', did you mean 'obs.logs'?"),
        ("select * from logs", "there is no table 'logs', did you mean 'obs.logs'?"),
        ("select ts from obs.logs a join obs.logs b on a.ts = b.ts", "'ts' is ambiguous"),
        ("select ts from obs.logs where", "expected an expression, found the end"),
        ("select ts,, service from obs.logs", "expected an expression, found ','"),
        ("selec ts from obs.logs", "did you mean 'select'?"),
        ("select 'a from obs.logs", "a quote that is not closed"),
        ("drop table obs.logs", "only queries can be run"),
        ("select '\udce4' from obs.logs", "a character that is not Unicode"),
    ],
)
def test_mistake_in_sql_is_one_message_with_its_place(text: str, message: str, lake: Lake) -> None:
    with pytest.raises(QueryError) as caught:
        lake.sql(text).to_arrow()
    assert message in str(caught.value)
    assert {"line", "column"} <= caught.value.facts.keys()
    assert "^" in str(caught.value)


def test_long_chain_of_conditions_is_no_deep_tree(lake: Lake) -> None:
    either = " or ".join(f"status = {number}" for number in range(900))
    assert lake.sql(f"select count(*) as n from obs.logs where {either}", engine="local").to_arrow()
    piped = "| where status >= 0" * 900
    assert lake.kql(f"obs.logs {piped} | count", engine="local").to_arrow()
    with pytest.raises(QueryError, match="nested too deeply, or one expression has too many parts"):
        lake.sql(f"select {'+'.join(['1'] * 3000)}")


def test_type_error_is_in_our_words_with_its_place(lake: Lake) -> None:
    with pytest.raises(QueryError) as caught:
        lake.sql("select sum(message) from obs.logs").to_arrow()
    assert str(caught.value).startswith("sum cannot be used with text: cast what it is given\n")
    assert caught.value.facts == {"line": 1, "column": 8}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select 9223372036854775807L + 1L", "a number is too large for its type"),
        ("select regexp_like('a', '(?=a)')", "a pattern looks ahead or behind"),
        ("select sum(sum(status)) from obs.logs", "an aggregate cannot hold another"),
        ("select ts from obs.logs where count(*) > 1", "where cannot hold an aggregate"),
        ("select (select status from obs.logs) as b", "a subquery that stands for one value gave several rows"),
        ("select 1 as a union select 1 as a, 2 as b", "different numbers of columns"),
        ("select service, count(*) from obs.logs group by status", "is neither grouped by nor inside of an aggregate"),
        ("select from_csv('1', 'a int')", "there is no function from_csv in process"),
        ("select array_sort(array(1), (a, b) -> a - b)", "takes no function in process"),
        ("select cast(interval '1' day as string)", "an interval is not cast to string in process"),
    ],
)
def test_what_the_engine_complains_of_is_said_in_our_words(text: str, message: str, lake: Lake) -> None:
    with pytest.raises(QueryError) as caught:
        lake.sql(text, engine="local").to_arrow()
    assert message in str(caught.value)
    assert not re.search("Error|GROUP BY|VARCHAR|DuckDB|COLUMNS", str(caught.value))


@pytest.mark.parametrize(
    "aggregate",
    [
        "stdev(status)", "stdevp(status)", "variance(status)", "variancep(status)", "covariance(status, status)",
        "make_list(service)", "make_list_with_nulls(service)", "make_list(attributes)", "make_list(ts)",
        "make_set(service)", "make_set(attributes)", "make_set(ts)", "make_bag(attributes)", "take_any(service)",
        "percentile(status, 90)", "percentiles_array(status, 50, 90)", "binary_all_or(status)",
        "binary_all_xor(status)", "binary_all_and(status)", "tostring(make_set(service))", "arg_max(status, service)",
        "arg_min(ts, *)", "dcount(service)", "countif(status > 300)", "avgif(status, status > 300)",
        "buildschema(attributes)", "percentilew(status, status, 50)",
    ],
)  # fmt: skip
def test_limit_does_not_reach_into_an_aggregate(aggregate: str, lake: Lake) -> None:
    (plan,) = lake.kql(f"obs.logs | summarize {aggregate} | take 1", engine="local").plans
    assert plan.question.limit is None


@pytest.mark.parametrize("aggregate", ["std(status)", "every(status > 210)", "try_sum(status)", "kurtosis(status)"])
def test_limit_does_not_reach_into_an_aggregate_of_sql(aggregate: str, lake: Lake) -> None:
    (plan,) = lake.sql(f"select {aggregate} as v from obs.logs limit 1", engine="local").plans
    assert plan.question.limit is None
    (plain,) = lake.sql("select upper(service) as v from obs.logs limit 1", engine="local").plans
    assert plain.question.limit == 1


EXPLODING = (
    "select count(*) from obs.logs a, obs.logs b, obs.logs c, obs.logs d, obs.logs e where a.status * e.status > 3"
)


def test_query_that_takes_too_long_is_stopped(lake: Lake) -> None:
    with pytest.raises(UnavailableError, match="took longer than its budget") as caught:
        lake.sql(EXPLODING, budget={"seconds": 0.3}).to_arrow()
    assert caught.value.kind == "time_budget"


def test_query_that_needs_too_much_memory_is_stopped(lake: Lake) -> None:
    text = "select a.message, b.message, c.message from obs.logs a, obs.logs b, obs.logs c order by 1, 2, 3"
    with pytest.raises(UnavailableError, match="more memory than its budget"):
        lake.sql(text, budget={"memory": "60MB", "seconds": 60}).to_arrow()


def test_query_that_would_read_too_much_is_refused_before_it_reads(lake: Lake) -> None:
    with pytest.raises(UnavailableError, match="would read more") as caught:
        lake.sql("select * from obs.logs", budget={"read": 10})
    assert caught.value.kind == "read_budget"
    lake.sql("select * from obs.logs where ts > '2030-01-01'", budget={"read": "1KB"})


@pytest.mark.parametrize("budget", [{"seconds": 0}, {"memory": "lots"}, {"minutes": 1}])
def test_budget_that_makes_no_sense_is_refused(budget: dict[str, object], lake: Lake) -> None:
    with pytest.raises(tidelake.InvalidInputError):
        lake.sql("select 1", budget=budget)


def test_engine_is_local_for_what_is_small_and_spark_otherwise(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lake.sql("select ts from obs.logs").engine == "local"
    monkeypatch.setattr(session, "LOCAL_BYTES", 0)
    assert lake.sql("select ts from obs.logs").engine == "spark"
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    assert lake.sql("select ts from obs.logs").engine == "local"
    with pytest.raises(tidelake.InvalidInputError, match="auto, local or spark"):
        lake.sql("select 1", engine="fast")


def test_result_is_given_in_every_form(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    result = lake.sql("select service, '<b>' as mark from obs.logs where ts = '2026-01-01T00:00:01Z'")
    assert "not read yet" in repr(result)
    assert result.to_polars().rows() == [("web", "<b>")]
    assert result.to_pandas().shape == (1, 2)
    assert pa.table(result).num_rows == len(result) == 1
    assert isinstance(polars.DataFrame(result), polars.DataFrame)
    assert "<td>&lt;b&gt;</td>" in result._repr_html_()
    result.show()
    assert capsys.readouterr().out == repr(result) + "\n" == "service  mark\n-------  ----\nweb      <b>\n"


def test_query_sees_a_commit_that_came_after_the_last_time_it_was_asked(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with tidelake.connect(tmp_path_factory.mktemp("lake")) as lake:
        table = lake.create_table("t", {"n": "int"})
        text = "select count(*) as n, sum(n) as s from t where n + 0 > 0"
        for number in (1, 2, 3):
            table.append([{"n": number}])
            assert lake.sql(text).to_arrow()["n"].to_pylist() == [number]
        table.add_column("m", "string")
        table.append([{"n": 9, "m": "x"}])
        assert lake.sql("select * from t where m = 'x'").columns == ("n", "m")
        assert lake.sql(text).to_arrow()["s"].to_pylist() == [15]


def test_kql_and_sql_ask_the_same_tables(lake: Lake) -> None:
    kql = lake.kql(
        "obs.logs | where ts >= datetime(2026-01-04) and message has 'timeout' | summarize n=count() by service"
    )
    sql = lake.sql(
        "select service, count(*) as n from obs.logs where ts >= '2026-01-04' and has(message, 'timeout') group by 1"
    )
    assert kql.to_arrow().to_pylist() == sql.to_arrow().to_pylist() == [{"service": "auth", "n": 6}]
    assert [len(plan.tasks) for plan in kql.plans] == [len(plan.tasks) for plan in sql.plans] == [1]


def test_kql_counts_from_the_manifest(lake: Lake) -> None:
    result = lake.kql("obs.logs | where ts < datetime(2026-01-03) | count")
    assert (result.engine, result.to_arrow().to_pylist()) == ("manifest", [{"Count": 120}])


def test_pushed_conditions_are_asked_of_the_scan(lake: Lake) -> None:
    kql = lake.kql("obs.logs | where service == 'web' and status > 300 and tostring(attributes.http.method) == 'PUT'")
    assert repr(kql.plans[0].question.where) == (
        "(service == 'web' and status > 300 and attributes['http.method'] == 'PUT')"
    )


@pytest.mark.parametrize(
    ("condition", "asked"),
    [
        ("message ilike '%TIMEOUT%'", "message contains 'MEOUT'"),  # engines have other small ones of an I
        ("message ilike 'Request 2-1%'", "message startswith 'Request 2-1'"),
        ("message ilike 'REQUEST_3%out'", "message startswith 'REQUEST'"),
        ("message ilike '%0_TIMEOUT'", "message contains 'MEOUT'"),
        ("message not ilike '%timeout%'", "None"),
        ("message ilike '%'", "None"),
    ],
)
def test_ilike_is_asked_of_the_scan(condition: str, asked: str, lake: Lake) -> None:
    text = f"select message from obs.logs where {condition} order by 1"
    result = lake.sql(text)
    assert repr(result.plans[0].question.where) == asked
    found = result.to_arrow()
    assert found.equals(run(lake, text, prune=False).to_arrow())
    assert found.num_rows


def test_ilike_prunes_what_cannot_hold_it(lake: Lake) -> None:
    assert len(lake.sql("select message from obs.logs where message ilike '%NOWHERE%'").plans[0].tasks) == 0


def test_kql_that_was_asked_before_is_not_read_again_unless_it_may_mean_something_else(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path) as lake:
        table = lake.create_table("t", {"n": "int"})
        table.append([{"n": 1}])

        def kept(text: str) -> bool:
            """Return whether asking twice binds once."""
            first, second = lake.kql(text), lake.kql(text)
            assert first.to_arrow().equals(second.to_arrow())
            return first._prepared is second._prepared

        assert kept("t | where n > 0 | project n")
        assert not kept("t | extend at = now() | project n")
        assert not kept("t | where ago(1d) < now() | project n")
        assert not kept("union t* | project n")
        fuzzy = "union isfuzzy=true t, u | project n"
        assert not kept(fuzzy)
        lake.create_table("u", {"n": "int"}).append([{"n": 2}])
        assert lake.kql("union t, u | count").to_arrow().to_pylist() == [{"Count": 2}]
        assert sorted(lake.kql(fuzzy).to_arrow()["n"].to_pylist()) == [1, 2]
        table.add_column("m", "string")
        assert lake.kql("t | take 1").columns == ("n", "m")
        assert lake.kql("t | where n > 0 | project n").columns == ("n",)


def test_program_ends_without_a_word_after_a_query(lake: Lake) -> None:
    program = f"import tidelake; tidelake.connect({lake.where!r}).sql('select ts from obs.logs limit 1').to_arrow()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == ("", "")


def test_pruning_off_gives_the_same_rows(lake: Lake) -> None:
    text = (
        "select service, status from obs.logs where message not like 'request 1%' and attributes:day > 2 order by 1, 2"
    )
    assert run(lake, text, prune=False).to_arrow().equals(lake.sql(text).to_arrow())


@pytest.mark.parametrize(
    ("condition", "told"),
    [
        ("ts > 1767225600", "write '2026-01-01T00:00:00Z', or timestamp_seconds"),
        ("1767225600000 < ts", "write '2026-01-01T00:00:00Z', or timestamp_seconds"),
        ("ts in (1767225600)", "write '2026-01-01T00:00:00Z'"),
        ("ts between 1 and 2", "write timestamp_seconds"),
        ("ts = -1.5", "write timestamp_seconds"),
    ],
)
def test_time_and_number_are_not_compared(lake: Lake, condition: str, told: str) -> None:
    for engine in ("local", "spark"):
        with pytest.raises(QueryError, match="a time cannot be compared with a number") as refused:
            lake.sql(f"select * from obs.logs where {condition}", engine=engine)
        assert told in str(refused.value)


@pytest.mark.parametrize(
    "text",
    [
        "select time()",
        "select '$.a' || first_value(time()) as a",
        "select upper(time())",
        "select to_json() as a",
        "select datetime(1) as a",
        "select make_interval(*) as a from obs.logs",
    ],
)
def test_a_call_that_lacks_what_the_engine_needs_is_an_error_of_ours(text: str, lake: Lake) -> None:
    with pytest.raises(QueryError, match=r"a function is given|too few arguments") as found:
        lake.sql(text).to_arrow()
    assert found.value.kind == "arguments"


def test_a_hash_that_is_another_on_spark_is_refused_in_process(lake: Lake) -> None:
    with pytest.raises(QueryError, match="no function hash in process"):
        lake.sql("select hash(1, 'a') as a").to_arrow()


@pytest.mark.parametrize("text", ["print a = typeof()", "print a = dynamic([1]) | mv-expand a to typeof()"])
def test_a_type_that_is_missing_is_an_error_of_ours(text: str, lake: Lake) -> None:
    with pytest.raises(QueryError, match="typeof takes one type here"):
        lake.kql(text).to_arrow()


@pytest.mark.parametrize(
    "condition",
    [
        "status in (select max(status) from obs.logs where status > 10)",
        "exists (select 1 from obs.logs inner_ where inner_.status = logs.status + 230)",
        "status >= (select max(status) from obs.logs)",
        "message = 'hot' or 1 = (select 0)",
        "1 = (select count(*) from obs.logs inner_ where inner_.message = 'hot' and logs.status = 1)",
    ],
)
def test_a_limit_waits_for_conditions_that_only_the_engine_asks(condition: str, lake: Lake) -> None:
    text = f"select status from obs.logs logs where {condition} limit 1"
    assert len(run(lake, text, prune=False).to_arrow()) == 1
    result = run(lake, text, engine="local")
    assert (len(result.to_arrow()), result.plans[0].question.limit) == (1, None)
    within = f"select n from (select status n, service from obs.logs logs where {condition}) limit 1"
    assert len(run(lake, within, engine="local").to_arrow()) == 1


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("select service from obs.logs a where exists (select * from obs.logs b where b.status = a.status)",
         [{"service", "status"}, {"status"}]),
        ("select service from obs.logs where status in (select status from (select * from obs.logs))",
         [{"service", "status"}, {"status"}]),
        ("select service from obs.logs where status < (select max(status) from (select * from obs.logs))",
         [{"service", "status"}, {"status"}]),
        ("select x.service from (select * from obs.logs union all select * from obs.logs) x",
         [{"service"}, {"service"}]),
        ("select count(*) from obs.logs a where not exists"
         " (select * from obs.logs b where b.status = a.status union all select * from obs.logs c)",
         [{"status"}, {"status", "ts"}, {"ts"}]),
        ("with t as (select * from obs.logs) select a.service from t a join t b on a.status = b.status",
         [{"service", "status"}]),
    ],
)  # fmt: skip
def test_subqueries_read_only_the_columns_that_matter(text: str, columns: list[set[str]], lake: Lake) -> None:
    result = run(lake, text, engine="local")
    assert [set(plan.question.columns) for plan in result.plans] == columns
    assert sorted(map(repr, result.to_arrow().to_pylist())) == sorted(
        map(repr, run(lake, text, prune=False).to_arrow().to_pylist())
    )


def test_words_in_double_quotes_name_columns_of_answers_too(tmp_path: Path) -> None:
    start = datetime(2026, 3, 14, tzinfo=UTC)
    changes = [
        {"_tide_pk": str(n), "_tide_op": "insert", "_tide_lsn": str(n), "_tide_event_at": start, "at.n": n}
        for n in range(5)
    ]
    changes[4]["_tide_event_at"] = start + timedelta(minutes=3)
    types = {"_tide_pk": "string", "_tide_op": "string", "_tide_lsn": "string", "_tide_event_at": "timestamp"}
    with tidelake.connect(tmp_path / "lake") as lake:
        lake.create_table("s.orders", types | {"at.n": "long"}, bucket="1m").append(changes)
        for source in ("latest('s.orders')", "(SELECT * FROM latest('s.orders'))", "s.orders"):
            found = lake.sql(f'SELECT "at.n" AS n FROM {source} WHERE "at.n" >= 3 ORDER BY 1').to_arrow()
            assert found.to_pylist() == [{"n": 3}, {"n": 4}]
        (gap,) = lake.sql("SELECT \"start\" AS s FROM gaps('s.orders')").to_arrow().to_pylist()
    assert gap == {"s": start + timedelta(minutes=1)}

"""Ask in PromQL: text cases with answers that were computed by hand, the API's JSON, mappings, budgets and mistakes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import tidelake
from tests.support.promqltest import NATIVE, Script
from tidelake.cli.main import main
from tidelake.lake import Lake

CASES = sorted((Path(__file__).parents[1] / "cases" / "promql").glob("*.test"))
START = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = {"ts": "timestamp", "name": "string", "labels": "dynamic", "value": "real"}
MODULE = "github.com/prometheus/prometheus@v0.313.1"
SHARE = 0.8  # of Prometheus' own evaluations without native histograms


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    with tidelake.connect(tmp_path / "lake", upkeep=False) as held:
        yield held


def filled(lake: Lake, name: str = "prom_samples") -> Lake:
    """Make a table with two counters of three samples, half a minute apart."""
    table = lake.create_table(name, COLUMNS, time="ts", flush_age="off")
    table.append(
        [
            {"ts": START + timedelta(seconds=30 * at), "name": "c", "labels": {"job": job}, "value": at * by}
            for at in range(3)
            for job, by in (("a", 3.0), ("b", 0.1))
        ]
    )
    return lake


def scripts() -> Path | None:
    """Return the folder of Prometheus' own tests: the one that is named, or that of its module, which go fetches."""
    if (named := os.environ.get("TIDELAKE_PROMQLTEST")) is not None:
        return Path(named)
    if (go := shutil.which("go")) is None:
        return None
    fetched = subprocess.run([go, "mod", "download", "-json", MODULE], capture_output=True, text=True, cwd="/")
    if fetched.returncode:
        return None
    return Path(json.loads(fetched.stdout)["Dir"]) / "promql" / "promqltest" / "testdata"


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_promql_answers_as_computed_by_hand(lake: Lake, path: Path) -> None:
    found = list(Script(lake, path.name).run(path.read_text()))
    assert found
    assert [each for each in found if each.cause] == []


@pytest.mark.torture
def test_promql_answers_as_prometheus_does(lake: Lake) -> None:
    folder = scripts()
    if folder is None:
        pytest.skip(
            "needs Prometheus' sources: set TIDELAKE_PROMQLTEST to their promql/promqltest/testdata, or have go"
        )
    found = [each for path in sorted(folder.glob("*.test")) for each in Script(lake, path.name).run(path.read_text())]
    asked = [each for each in found if each.cause != NATIVE]
    wrong = [each for each in asked if each.cause]
    for each in sorted(wrong, key=lambda each: (each.cause, each.file, each.line)):
        print(f"{each.cause}: {each.file}:{each.line} {each.query} {each.detail[:200]}")
    print(f"{len(asked) - len(wrong)} of {len(asked)} as Prometheus; {len(found) - len(asked)} of native histograms")
    assert len(asked) > 1_000
    assert len(wrong) <= (1 - SHARE) * len(asked)


def test_promql_of_a_range_is_a_matrix_as_the_api_has_it(lake: Lake) -> None:
    answer = filled(lake).promql("c", start=START, end=START + timedelta(seconds=45.5), step="30s")
    assert answer.to_json() == (
        b'{"resultType":"matrix","result":['
        b'{"metric":{"__name__":"c","job":"a"},"values":[[1767225600,"0"],[1767225630,"3"]]},'
        b'{"metric":{"__name__":"c","job":"b"},"values":[[1767225600,"0"],[1767225630,"0.1"]]}]}'
    )
    assert repr(answer) == "PromAnswer(matrix, 2 series, 4 points)"


def test_promql_of_an_instant_is_a_vector_a_scalar_a_text_or_samples(lake: Lake) -> None:
    at = START + timedelta(seconds=30.25)
    ask = filled(lake).promql
    assert ask("-c{job='a'}", time=at).to_prometheus() == {
        "resultType": "vector",
        "result": [{"metric": {"job": "a"}, "value": [1767225630.25, "-3"]}],
    }
    assert ask("1 / 0", time=at).to_prometheus() == {"resultType": "scalar", "result": [1767225630.25, "+Inf"]}
    assert ask("'x\"y'", time=at).to_prometheus() == {"resultType": "string", "result": [1767225630.25, 'x"y']}
    assert ask("c{job='b'}[1m]", time=at).to_prometheus()["result"] == [
        {"metric": {"__name__": "c", "job": "b"}, "values": [[1767225600, "0"], [1767225630, "0.1"]]}
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1e21", "1e+21"), ("1e20", "100000000000000000000"), ("0.000001", "0.000001"), ("0.0000001", "1e-07"),
        ("123456789012.5", "123456789012.5"), ("-0", "-0"), ("NaN", "NaN"), ("-Inf", "-Inf"),
        ("0.1 + 0.2", "0.30000000000000004"), ("5e-324", "5e-324"),
    ],
)  # fmt: skip
def test_promql_writes_numbers_as_prometheus_prints_them(lake: Lake, value: str, text: str) -> None:
    assert lake.promql(value, time=START).to_prometheus()["result"][1] == text


def test_promql_gives_rows_in_arrow(lake: Lake) -> None:
    rows = filled(lake).promql("sum by (job) (c)", time=START + timedelta(minutes=1)).to_arrow()
    assert rows.schema.names == ["ts", "labels", "value"]
    assert rows.to_pylist() == [
        {"ts": START + timedelta(minutes=1), "labels": '{"job":"a"}', "value": 6.0},
        {"ts": START + timedelta(minutes=1), "labels": '{"job":"b"}', "value": 0.2},
    ]


def test_promql_on_the_command_line_writes_rows(lake: Lake) -> None:
    filled(lake)
    told = ["query", "--lake", str(lake.where), "--promql", "sum(c)", "--format", "ndjson"]
    result = CliRunner().invoke(main, [*told, "--start", "2026-01-01T00:00:00Z", "--end", "2026-01-01T00:01:00Z"])
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"ts": "2026-01-01T00:00:00Z", "labels": {}, "value": 0.0},
        {"ts": "2026-01-01T00:01:00Z", "labels": {}, "value": 6.2},
    ]
    mapped = CliRunner().invoke(main, [*told, "--at", "2026-01-01T00:01:00Z", "--table", '{"table": "prom_samples"}'])
    assert json.loads(mapped.stdout)["value"] == 6.2
    assert CliRunner().invoke(main, ["query", "--sql", "select 1", "--step", "1m"]).exit_code == 1


def test_promql_reads_only_blocks_that_the_selector_may_match(lake: Lake) -> None:
    table = lake.create_table("prom_samples", COLUMNS, time="ts", flush_age="off")
    for day in range(3):
        for job in ("a", "b"):
            table.append(
                [
                    {"ts": START + timedelta(days=day, seconds=at), "name": "c", "labels": {"job": job}, "value": at}
                    for at in range(60)
                ]
            )
            table.flush()
    answer = lake.promql('sum(rate(c{job="a"}[1m]))', time=START + timedelta(days=1, minutes=1))
    (plan,) = answer.plans
    assert [len(plan.tasks), plan.question.columns] == [1, ("ts", "labels", "value")]
    assert answer.to_prometheus()["result"][0]["value"][1] == "1"
    assert "prom_samples" in answer.explain()


def test_promql_of_duplicate_rows_takes_the_last(lake: Lake) -> None:
    table = filled(lake).table("prom_samples")
    table.append([{"ts": START, "name": "c", "labels": {"job": "a"}, "value": 9.0}])
    assert lake.promql('c{job="a"}', time=START).to_prometheus()["result"][0]["value"][1] == "9"


def test_promql_of_any_table_takes_its_columns_for_metrics_and_labels(lake: Lake) -> None:
    table = lake.create_table(
        "m.cpu", {"at": "timestamp", "host": "string", "core": "int", "user": "real", "idle": "long"}, time="at"
    )
    table.append(
        [{"at": START, "host": host, "core": core, "user": core + 0.5, "idle": 7} for host in "xy" for core in (0, 1)]
    )
    told = {"table": "m.cpu", "labels": ["host", "core"], "value": ["user", "idle"]}
    found = lake.promql('sum by (host) (user{core="1"}) + on (host) max by (host) (idle)', time=START, table=told)
    assert found.to_prometheus()["result"] == [
        {"metric": {"host": "x"}, "value": [1767225600, "8.5"]},
        {"metric": {"host": "y"}, "value": [1767225600, "8.5"]},
    ]
    assert lake.promql("{__name__=~'us.*'}", time=START, table="m.cpu").series[0]["__name__"] == "user"


def test_promql_of_dynamic_labels_finds_numbers_truths_and_nested_keys(lake: Lake) -> None:
    table = lake.create_table("t", COLUMNS, time="ts")
    table.append(
        [
            {"ts": START, "name": "m", "labels": {"code": 200, "ok": True, "http": {"method": "GET"}}, "value": 1.0},
            {"ts": START, "name": "m", "labels": {"code": "200", "ok": "true", "part": 0.5}, "value": 2.0},
        ]
    )

    def ask(text: str) -> list[dict[str, str]]:
        return list(lake.promql(text, time=START, table="t").series)

    assert len(ask('m{code="200", ok="true"}')) == 2
    assert ask('m{"http.method"="GET"}') == [{"__name__": "m", "code": "200", "ok": "true", "http.method": "GET"}]
    assert ask('m{part="0.5"}') == [{"__name__": "m", "code": "200", "ok": "true", "part": "0.5"}]


def test_promql_of_a_users_table_sees_that_users_rows(lake: Lake) -> None:
    table = lake.create_table("prom_samples", COLUMNS, time="ts", scope="user")
    for user, value in (("ann", 1.0), ("bob", 2.0)):
        table.user(user).append([{"ts": START, "name": "c", "labels": {}, "value": value}])
    assert lake.promql("c", time=START, user="bob").values.tolist() == [2.0]
    assert lake.user("bob").promql("c", time=START).values.tolist() == [2.0]


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("sum(c", "unclosed left parenthesis", 4),
        ("c + nope(c)", "unknown function with name 'nope'", 5),
        ("rate(c)", "expected type matrix in call to function 'rate', got vector", 1),
        ("c c", "invalid promql query", 3),
        ("info(c)", "function 'info' is not supported", 1),
        ("topk(NaN, c)", "Parameter value is NaN", 1),
    ],
)
def test_promql_says_what_is_wrong_and_where(lake: Lake, text: str, message: str, column: int) -> None:
    with pytest.raises(tidelake.QueryError) as caught:
        filled(lake).promql(text, time=START)
    assert caught.value.message.startswith(message)
    assert caught.value.facts["column"] == column


def test_promql_refuses_what_exceeds_its_budget(lake: Lake) -> None:
    ask = filled(lake).promql
    for budget, kind in (
        ({"read": 1}, "read_budget"),
        ({"memory": 10}, "memory_budget"),
        ({"seconds": 1e-9}, "time_budget"),
    ):
        with pytest.raises(tidelake.UnavailableError) as caught:
            ask("rate(c[1m])", start=START, end=START + timedelta(hours=1), step="1s", budget=budget)
        assert caught.value.kind == kind


@pytest.mark.parametrize(
    "words",
    [{"start": START}, {"start": START, "end": START - timedelta(1)}, {"time": START, "start": START, "end": START},
     {"start": START, "end": START, "step": 0}, {"start": START, "end": START, "step": "soon"}, {"step": "1m"}],
)  # fmt: skip
def test_promql_refuses_times_that_are_no_range(lake: Lake, words: dict[str, Any]) -> None:
    with pytest.raises(tidelake.InvalidInputError):
        filled(lake).promql("c", **words)


def test_promql_refuses_a_mapping_with_columns_that_are_not_there(lake: Lake) -> None:
    filled(lake)
    for told in ({"labels": "nope"}, {"column": "x"}, {"value": ["value", "ts"]}):
        with pytest.raises(tidelake.InvalidInputError):
            lake.promql("c", time=START, table=told)


def test_promql_of_a_table_that_is_not_there_says_so(lake: Lake) -> None:
    with pytest.raises(tidelake.NotFoundError):
        lake.promql("c", time=START)
    assert lake.promql("vector(1)", time=START).values.tolist() == [1.0]


def test_promql_keeps_stale_markers_of_many_appends_apart(lake: Lake) -> None:
    table = lake.create_table("prom_samples", COLUMNS, time="ts")
    bits = pa.array([0x7FF0000000000002], pa.int64()).view(pa.float64())
    table.append([{"ts": START, "name": "c", "labels": {}, "value": 1.0}])
    later = pa.array([START + timedelta(seconds=1)], pa.timestamp("us", tz="UTC"))
    marker = [later, pa.array(["c"]), pa.array([b"\xa0"], pa.binary()), bits]
    table.append(pa.table(marker, schema=_marked()))
    assert len(lake.promql("c", time=START + timedelta(seconds=2))) == 0
    assert len(lake.promql("c", time=START)) == 1


def _marked() -> pa.Schema:
    dynamic = pa.field("labels", pa.binary(), metadata={"tidelake.type": "dynamic"})
    return pa.schema([("ts", pa.timestamp("us", tz="UTC")), ("name", pa.string()), dynamic, ("value", pa.float64())])


@pytest.mark.parametrize(
    "text", ["(" * 9_000 + "c" + ")" * 9_000, "abs(" * 200 + "c" + ")" * 200, "+".join(["c"] * 9_000)]
)
def test_promql_refuses_what_is_nested_too_deeply(lake: Lake, text: str) -> None:
    with pytest.raises(tidelake.QueryError) as caught:
        filled(lake).promql(text, time=START)
    assert caught.value.kind == "too_deep"


@pytest.mark.parametrize(
    "text",
    ["c @ -100", "c @ 1e300", "c @ 1e12", "c[10000000y]", "c offset -10000000y", "c[300000000y]",
     "vector(1)[1d:10000000y]", "count_values('', c)", "c{" + ",".join(f'a{at}="b"' for at in range(3_000)) + "}"],
)  # fmt: skip
def test_promql_refuses_times_and_conditions_that_nobody_means(lake: Lake, text: str) -> None:
    with pytest.raises(tidelake.QueryError):
        filled(lake).promql(text, time=START)


@pytest.mark.parametrize("step", [float("nan"), float("inf"), 1e300, "NaN", "1e300", "99999999999y"])
def test_promql_refuses_steps_that_are_no_times(lake: Lake, step: Any) -> None:
    with pytest.raises(tidelake.InvalidInputError) as caught:
        filled(lake).promql("c", start=START, end=START, step=step)
    assert caught.value.kind == "bad_duration"

"""Ingest the files that people have, each with one command."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner, Result

import tidelake
from tests.support.files import FILES, ROWS, START, MadeFile, at
from tests.support.samples import FIRST_LINES, log_lines
from tidelake.catalog.unused import remove_unused
from tidelake.cli.main import main
from tidelake.ingest import FileRows, Rules
from tidelake.ingest.files import HEAD_BYTES

PAGE = Path(__file__).parents[2] / "docs" / "ingest.md"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str | Path, given: bytes | None = None) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=given)


def ingested(name: str, data: bytes, *options: str) -> pa.Table:
    """Ingest bytes as a file, and return the table."""
    Path(name).write_bytes(data)
    result = run("ingest", "t", name, *options)
    assert (result.exit_code, result.stderr) == (0, "")
    return rows_of("t")


def rows_of(table: str) -> pa.Table:
    with tidelake.connect("lake", create=False) as lake:
        return lake.table(table).scan(ordered=True).read_all()


def refused(name: str, data: bytes, *options: str) -> str:
    """Ingest bytes that are not taken, and return why; nothing may be left."""
    Path(name).write_bytes(data)
    result = run("ingest", "t", name, *options)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert not Path("lake").exists()
    assert not list(Path().glob("*quarantine*"))
    return result.stderr


@pytest.mark.parametrize("made", FILES, ids=lambda made: made.name)
def test_a_common_file_goes_in_with_one_command(made: MadeFile, here: Path) -> None:
    if made.options:
        assert made.error in refused(made.name, made.make())
    table = ingested(made.name, made.make(), *made.options)
    times = table.column(made.time).to_pylist()
    wanted = made.first if made.name != "messages" else newest_year(made.first)
    assert (len(times), times[0], table.schema.field(made.time).type) == (
        made.rows, wanted, pa.timestamp("us", tz="UTC"),
    )  # fmt: skip
    assert made.columns <= set(table.column_names)
    assert {name: table.column(name)[0].as_py() for name in made.facts} == made.facts


def newest_year(moment: datetime) -> datetime:
    """Return what a time without a year is taken as."""
    latest = datetime.now(UTC) + timedelta(days=1)
    return moment.replace(year=latest.year if moment.replace(year=latest.year) <= latest else latest.year - 1)


def test_the_documentation_has_every_file_of_these() -> None:
    table = re.findall(r"^\| ([^|]+) \| `(tidelake ingest [^`]+)` \|", PAGE.read_text(), re.MULTILINE)
    wanted = [
        (made.about, " ".join(["tidelake ingest t", made.name, *(f"'{o}'" if " " in o else o for o in made.options)]))
        for made in FILES
    ]
    assert table == wanted


@pytest.mark.parametrize("system", sorted(FIRST_LINES))
def test_log_lines_of_ten_systems_go_in_with_their_times(system: str, here: Path) -> None:
    file = log_lines(here, system)
    assert run("ingest", "t", file).exit_code == 0
    with tidelake.connect("lake") as lake:
        rows = lake.table("t").scan().read_all()
    text = pa.input_stream(str(file), compression="zstd").read().decode("utf-8", "replace")
    first = text.splitlines()[0].rstrip("\r")
    assert sorted("\n".join(rows.column("line").to_pylist()).split("\n")) == sorted(
        text.rstrip("\r\n").replace("\r\n", "\n").split("\n")
    )
    assert_first(rows.filter(pc.equal(rows.column("line"), first)), FIRST_LINES[system])


MADE_LINES = {
    "Apache": ("[Sun Dec 04 04:47:44 2005] [notice] workers ready", "2005-12-04T04:47:44"),
    "HDFS": ("081109 203615 148 INFO dfs.Node: block 1 ends", "2008-11-09T20:36:15"),
    "HPC": ("134681 node-2 unix.hw state_change.unavailable 1077804742 1 changed", "2004-02-26T14:12:22"),
    "Proxifier": ("[10.30 16:49:06] web.exe - proxy:5070 open", "10-30T16:49:06"),
    "Spark": ("17/06/09 20:10:40 INFO exec.Backend: registered", "2017-06-09T20:10:40"),
    "Windows": ("2016-09-28 04:30:30, Info                  CBS    Loaded", "2016-09-28T04:30:30"),
    "Zookeeper": ("2015-07-29 17:41:44,747 - INFO  [Peer:Election@774] - time out", "2015-07-29T17:41:44.747"),
    "BGL": ("- 1117838570 2005.06.03 R02-M1 2005-06-03-15.42.50.675872 RAS KERNEL INFO fixed", "2005-06-03T22:42:50"),
    "Android": ("03-17 16:13:38.811  1702  2395 D WindowManager: printing", "03-17T16:13:38.811"),
    "klog": ("I0317 16:13:38.811000  1702 server.go:12] started", "03-17T16:13:38.811"),
    "logfmt": ('level=info ts=2026-03-14T12:00:00.5Z caller=main.go msg="up"', "2026-03-14T12:00:00.500"),
    "nginx error": ("2026/03/14 12:00:00 [error] 7#7: *1 open() failed", "2026-03-14T12:00:00"),
    "Python": ("2026-03-14 12:00:00,123 WARNING root: low", "2026-03-14T12:00:00.123"),
}  # fmt: skip


@pytest.mark.parametrize("system", sorted(MADE_LINES))
def test_lines_of_a_known_shape_have_their_times(system: str, here: Path) -> None:
    line, first = MADE_LINES[system]
    rows = ingested("some.log", f"{line} 1\n{line} 2\n".encode())
    assert rows.column("line").to_pylist() == [f"{line} 1", f"{line} 2"]
    assert_first(rows, first)


def assert_first(rows: pa.Table, first: str) -> None:
    found = rows.column("ts")[0].as_py()
    if first[4] == "-":
        assert found == datetime.fromisoformat(first).replace(tzinfo=UTC)
    else:
        assert found == newest_year(datetime.fromisoformat(f"2024-{first}").replace(tzinfo=UTC))


def test_a_stack_trace_belongs_to_the_event_before_it(here: Path) -> None:
    made = next(made for made in FILES if made.name == "app.log")
    events = ingested("app.log", made.make()).column("line").to_pylist()
    assert "\n".join(events) + "\n" == made.make().decode()
    assert (len(events), events[0].count("\n"), events[1].count("\n")) == (ROWS, 4, 0)


def test_lines_before_the_first_time_take_it(here: Path) -> None:
    rows = ingested("a.log", b"#Software: web\n#Version 1\n\n2026-03-14 12:00:00 GET /\n2026-03-14 12:00:01 GET /b\n")
    assert rows.column("line").to_pylist()[0] == "#Software: web\n#Version 1"
    assert rows.column("ts").to_pylist()[:2] == [START, START]


def test_events_are_whole_wherever_pieces_end(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = next(made for made in FILES if made.name == "app.log")
    for size in (64, 100, 257):
        monkeypatch.setattr("tidelake.ingest.text_encoding.PIECE_BYTES", size)
        monkeypatch.setattr("tidelake.ingest.text_encoding._LOOK_BYTES", 32)
        Path("app.log").write_bytes(made.make())
        table = f"t{size}"
        assert run("ingest", table, "app.log").exit_code == 0
        rows = rows_of(table)
        assert (rows.num_rows, "\n".join(rows.column("line").to_pylist()) + "\n") == (ROWS, made.make().decode())


@pytest.mark.parametrize("size", [31, 100, 1000])
def test_csv_rows_are_whole_wherever_pieces_end(size: int, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelake.ingest.text_encoding.PIECE_BYTES", size)
    monkeypatch.setattr("tidelake.ingest.text_encoding._LOOK_BYTES", 16)
    text = "".join(f'{at(n):%Y-%m-%d %H:%M:%S},"first {n}\nsecond ""{n}""",{n}\n' for n in range(ROWS))
    rows = ingested("a.csv", f"Timestamp,text,n\n{text}".encode())
    assert rows.column("text").to_pylist() == [f'first {n}\nsecond "{n}"' for n in range(ROWS)]
    assert rows.column("n").to_pylist() == list(range(ROWS))


@pytest.mark.parametrize("size", [17, 64, 1000])
@pytest.mark.parametrize("name", ["cloudtrail.json", "packets.json", "objects.json", "winevents.json"])
def test_documents_are_whole_wherever_pieces_end(
    name: str, size: int, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = next(made for made in FILES if made.name == name)
    Path(name).write_bytes(made.make())
    assert run("ingest", "whole", name).exit_code == 0
    monkeypatch.setattr("tidelake.ingest.text_encoding.PIECE_BYTES", size)
    assert run("ingest", "whole", name).exit_code == 0
    rows = rows_of("whole")
    assert rows.num_rows == 2 * ROWS
    assert sorted(map(str, rows.to_pylist()))[::2] == sorted(map(str, rows.to_pylist()))[1::2]


def test_a_type_that_changes_later_keeps_every_value(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelake.ingest.text_encoding.PIECE_BYTES", 300)
    made = next(made for made in FILES if made.name == "late.csv")
    Path("late.csv").write_bytes(made.make())
    assert run("ingest", "t", "late.csv").exit_code == 0
    found = run("query", "t | order by Timestamp asc | project v = tostring(v)", "--format", "json")
    assert [row["v"] for row in orjson.loads(found.stdout)] == [str(n) if n < 30 else "n.v." for n in range(ROWS)]


def test_numbers_and_words_of_csv_are_what_they_look_like(here: Path) -> None:
    rows = ingested(
        "a.csv",
        b"Time,code,big,huge,real,yes,none,when,text,spaced\n"
        b"2026-03-14 12:00:00,007,9223372036854775807,99999999999999999999,1e3,true,,2026-01-01,5x, 4\n"
        b"2026-03-14 12:00:01,12,-5,1,.5,FALSE,,2026-01-02T03:04:05Z,NULL,NULL\n",
    )
    first = {name: rows.column(name)[0].as_py() for name in rows.column_names}
    assert first == {
        "Time": START, "code": "007", "big": 2**63 - 1, "huge": "99999999999999999999", "real": 1000.0, "yes": True,
        "when": datetime(2026, 1, 1, tzinfo=UTC), "text": "5x", "spaced": 4,
    }  # fmt: skip
    assert (rows.column("text")[1].as_py(), rows.column("spaced")[1].as_py()) == ("NULL", None)


def test_standard_input_is_text_json_or_csv(here: Path) -> None:
    for at_, (name, columns) in enumerate(
        [("app.log", "line"), ("cloudtrail.json", "eventName"), ("counts.tsv", "Place")]
    ):
        made = next(made for made in FILES if made.name == name)
        result = run("ingest", f"t{at_}", "-", given=made.make())
        assert (result.exit_code, result.stdout) == (0, f"-: {ROWS} rows into t{at_} (hot), snapshot 2\n")
        assert columns in rows_of(f"t{at_}").column_names


def test_a_pipe_is_never_held_whole() -> None:
    line = b"2026-03-14 12:00:00 INFO something of no interest that repeats itself\n"

    class Pipe(io.BytesIO):
        given = 0

        def read(self, size: int | None = -1) -> bytes:
            data = super().read(size)
            self.given += len(data)
            return data

    pipe = Pipe(line * 500_000)
    rows = FileRows(pipe)
    schema, time = rows.schema()
    batches = rows.coerced(schema, Rules(time=time))
    first = next(batches).batch.num_rows
    assert pipe.given <= 3 * HEAD_BYTES
    assert first + sum(coerced.batch.num_rows for coerced in batches) == 500_000


def test_a_date_and_a_time_are_named_with_a_plus_and_a_path_with_points(here: Path) -> None:
    rows = ingested("a.csv", b"d,x,n\n14.03.2026,12:00,1\n", "--time", "d+x")
    assert rows.column("ts").to_pylist() == [START]
    rows = ingested("b.ndjson", b'{"a": {"b": "2026-03-14 12:00", "c": 1}}\n', "--time", "a.b")
    assert rows.column("ts").to_pylist() == [START, START]


def test_a_file_goes_into_a_table_whose_time_has_another_name(here: Path) -> None:
    run("init")
    run("create", "t", "at:timestamp", "n:long")
    rows = ingested("a.csv", b"Timestamp,n\n14.03.2026 12:00:00,1\n")
    assert rows.to_pylist() == [{"at": START, "n": 1}]
    rows = ingested("b.log", b"2026-03-14 12:00:37 started\n")
    assert (rows.column_names, rows.column("at").to_pylist()) == (
        ["at", "n", "line"],
        [START, at(1)],
    )


def test_missing_times_fail_are_left_out_or_are_now(here: Path) -> None:
    data = b'{"ts": "2026-03-14T12:00:00Z", "n": 1}\n{"n": 2}\n\n{"ts": "soon", "n": 3}\n'
    told = refused("a.ndjson", data)
    assert "--missing-time skip" in told
    assert "line=2" in told
    Path("a.ndjson").write_bytes(data)
    result = run("ingest", "skipped", "a.ndjson", "--missing-time", "skip", "--json")
    assert (orjson.loads(result.stdout)["rows"], orjson.loads(result.stdout)["skipped"]) == (1, 2)
    kept = [orjson.loads(line) for line in Path("a.ndjson.quarantine.ndjson").read_bytes().splitlines()]
    assert kept == [
        {"file": "a.ndjson", "line": 2, "reason": "no time in ts: none", "raw": '{"n": 2}'},
        {"file": "a.ndjson", "line": 4, "reason": "no time in ts: 'soon'", "raw": '{"ts": "soon", "n": 3}'},
    ]
    assert run("ingest", "filled", "a.ndjson", "--missing-time", "now").exit_code == 0
    times = rows_of("filled").column("ts").to_pylist()
    assert (len(times), times[0]) == (3, START)
    assert abs(times[1] - datetime.now(UTC)) < timedelta(minutes=5)


def test_bad_lines_are_left_out_and_kept(here: Path) -> None:
    good = [f'{{"ts": "2026-03-14T12:00:00Z", "n": {n}}}' for n in range(6)]
    text = "\n".join([good[0], "{", good[1], good[2], '{"ts": 1 2}', "[]", good[3], "", good[4], "x", good[5]])
    assert "line=2" in refused("a.ndjson", text.encode())
    rows = ingested("a.ndjson", text.encode(), "--skip-bad", "--quarantine", "bad.ndjson")
    assert rows.column("n").to_pylist() == list(range(6))
    kept = [orjson.loads(line) for line in Path("bad.ndjson").read_bytes().splitlines()]
    assert [(row["line"], row["raw"]) for row in kept] == [(2, "{"), (5, '{"ts": 1 2}'), (6, "[]"), (10, "x")]
    assert all("bad JSON" in row["reason"] for row in kept)


def test_bad_rows_of_csv_are_left_out_and_kept(here: Path) -> None:
    data = b"Timestamp,n\n2026-03-14,1\n2026-03-15\n2026-03-16,3,4\nnever,4\n2026-03-17,5\n"
    assert "line=3" in refused("a.csv", data)
    rows = ingested("a.csv", data, "--skip-bad", "--missing-time", "skip")
    assert rows.column("n").to_pylist() == [1, 5]
    kept = [orjson.loads(line) for line in Path("a.csv.quarantine.ndjson").read_bytes().splitlines()]
    assert [(row["line"], row["raw"]) for row in kept] == [(3, "2026-03-15"), (4, "2026-03-16,3,4"), (5, "never,4")]


def test_set_gives_every_row_a_value(here: Path) -> None:
    rows = ingested("a.ndjson", b'{"ts": "2026-03-14T12:00:00Z", "host": "x"}\n', "--set", "host=web1", "--set", "n=3")
    assert rows.to_pylist() == [{"ts": START, "host": "web1", "n": 3}]
    rows = ingested("a.log", b"2026-03-14 12:00:00 up\n", "--set", "host=web=2")
    assert rows.column("host").to_pylist() == ["web1", "web=2"]
    assert run("ingest", "t", "a.log", "--set", "host").exit_code == 2


def test_lines_take_json_and_csv_as_text(here: Path) -> None:
    text = '{"ts": "2026-03-14T12:00:00Z"}'
    assert ingested("a.ndjson", f"{text}\n".encode(), "--lines").to_pylist() == [{"ts": START, "line": text}]


def test_a_time_format_and_a_delimiter_are_taken_as_told(here: Path) -> None:
    rows = ingested(
        "a.csv",
        b"when~n\n14h03 2026/03/14~1\n",
        "--delimiter",
        "~",
        "--time",
        "when",
        "--time-format",
        "%Hh%M %Y/%m/%d",
    )
    assert rows.to_pylist() == [{"when": START + timedelta(hours=2, minutes=3), "n": 1}]
    rows = ingested(
        "b.log", b"x [2026|73] no\ny [14~03~2026 12h] yes\n", "--time-format", "%d~%m~%Y %Hh", "--time", "when"
    )
    assert rows.column("when").to_pylist()[1] == START
    assert "unknown field %Q" in run("ingest", "u", "b.log", "--time-format", "%Q").stderr


@pytest.mark.parametrize(
    ("text", "value"),
    [("NaN", "nan"), ("Infinity", "inf"), ("-Infinity", "-inf"), ("1e400", "inf"), ("-1e400", "-inf")],
)
def test_numbers_that_json_has_not_are_reals(text: str, value: str, here: Path) -> None:
    line = f'{{"ts": "2026-03-14T12:00:00Z", "v": {text}, "d": {{"x": [{text}]}}}}\n'
    row = ingested("a.ndjson", line.encode() * 2 + b'{"ts": "2026-03-14T12:00:01Z", "v": 1.5}\n').to_pylist()[0]
    assert str(row["v"]) == value
    assert str(tidelake.decode([row["d"]])[0]["x"][0]) == value


def test_compressed_files_need_no_name(here: Path) -> None:
    made = next(made for made in FILES if made.name == "counts.tsv")
    assert ingested("counts", gzip.compress(made.make())).num_rows == ROWS


def test_python_takes_the_same_options(here: Path) -> None:
    with tidelake.connect("lake") as lake:
        data = b"when;n\n14.03.2026 12:00;1\nnever;2\n"
        report = lake.ingest("t", io.BytesIO(data), missing_time="skip", constants={"host": "a"}, quarantine="q.ndjson")
        assert (report.rows, report.skipped, Path("q.ndjson").exists()) == (1, 1, True)
        assert lake.table("t").scan().read_all().to_pylist() == [{"when": START, "n": 1, "host": "a"}]
        with pytest.raises(tidelake.InvalidInputError, match="options are for files"):
            lake.ingest("t", [{"when": START}], lines=True)


def test_what_fails_leaves_no_table_and_no_quarantine_file(here: Path) -> None:
    run("init")
    lines = [json.dumps({"ts": f"{at(n):%Y-%m-%dT%H:%M:%SZ}", "n": n}) for n in range(5)]
    Path("a.ndjson").write_text("\n".join([*lines, '{"n": 5}', "{"]))
    assert run("ingest", "t", "a.ndjson", "--missing-time", "skip").exit_code == 1
    with tidelake.connect("lake") as lake:
        assert lake.tables() == []
        with pytest.raises(tidelake.InvalidInputError):
            lake.ingest("u", iter([{"ts": START}] * 70_000 + [{"ts": None}]))
        assert lake.tables() == []
    assert sorted(path.name for path in Path().iterdir()) == ["a.ndjson", "lake"]


LATE = b'{"ts": "2026-03-14T12:00:00Z", "m": "%s"}\n' % (b"words " * 50) * (HEAD_BYTES // 300)


def test_what_fails_beyond_the_first_rows_leaves_no_lake(here: Path) -> None:
    assert "line=" in refused("late.ndjson", LATE + b"{\n")
    run("init")
    Path("late.ndjson").write_bytes(LATE + b"{\n")
    assert run("ingest", "t", "late.ndjson").exit_code == 1
    assert Path("lake").exists()  # it was there before


@pytest.mark.parametrize("name", ["late.ndjson", "-"])
def test_whole_numbers_become_real_where_later_rows_need_it(name: str, here: Path) -> None:
    data = LATE.replace(b'"m"', b'"n": 3000000000, "m"') + b'{"ts": "2026-03-14T12:00:01Z", "n": 0.5, "m": ""}\n'
    Path("late.ndjson").write_bytes(data)
    result = run("ingest", "t", name, given=data)
    assert (result.exit_code, "fit no column" in result.stdout) == (0, False), result.output
    with tidelake.connect("lake") as lake:
        found = lake.table("t").scan(["n"]).read_all().column("n")
    assert (found.type, pc.min_max(found).as_py()) == (pa.float64(), {"min": 0.5, "max": 3e9})


def test_a_lake_that_another_has_open_or_that_holds_a_table_is_not_taken_away(here: Path) -> None:
    with tidelake.connect("lake") as lake:
        assert not remove_unused(Path("lake"))
        lake.create_table("t", {"ts": "timestamp"})
    assert not remove_unused(Path("lake"))
    with tidelake.connect("lake") as lake:
        lake.drop_table("t")
    Path("lake/data/default/t/extents").mkdir(parents=True)  # as an extent that was given up leaves them
    Path("lake/data/else").touch()
    assert not remove_unused(Path("lake"))
    Path("lake/data/else").unlink()
    assert (remove_unused(Path("lake")), Path("lake").exists()) == (True, False)


def test_ctrl_c_leaves_no_lake_that_was_made_for_what_it_stopped(here: Path) -> None:
    command = [sys.executable, "-m", "tidelake", "ingest", "t", "-"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(LATE * 2)
    process.stdin.flush()  # it waits for more by now
    while not Path("lake/catalog.sqlite").exists():
        os.sched_yield()
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told, list(here.iterdir())) == (130, b"tidelake: stopped\n", [])


def test_a_stopped_ingest_leaves_nothing_behind(here: Path) -> None:
    run("init")
    command = [sys.executable, "-m", "tidelake", "ingest", "t", "-", "--skip-bad"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    line = b"{\n" + b'{"ts": "2026-03-14T12:00:00Z", "n": 1}\n'
    process.stdin.write(line * (9 << 15))
    process.stdin.flush()  # it waits for more by now
    wait_for_table()
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (130, b"tidelake: stopped\n")
    with tidelake.connect("lake") as lake:
        assert lake.tables() == []
    assert sorted(path.name for path in Path().iterdir()) == ["lake"]
    assert not list(Path("lake").rglob("*.tlm*"))


def wait_for_table() -> None:
    with tidelake.connect("lake") as lake:
        while not lake.tables():
            os.sched_yield()


def test_head_ends_every_command_that_prints_with_success(here: Path) -> None:
    ingested("a.log", b"".join(b"2026-03-14 12:00:00 line %d\n" % n for n in range(3000)))
    for command in ("query t --format ndjson", "query t", "history t"):
        whole = f"set -o pipefail; {sys.executable} -m tidelake {command} | head -n 1"
        found = subprocess.run(["bash", "-c", whole], capture_output=True, text=True, check=False)
        assert (found.returncode, found.stderr) == (0, ""), command


def test_rows_that_are_no_file_have_their_times_under_names_of_any_case(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path) as lake:
        lake.ingest("t", [{"Id": 1, "UtcTime": "2026-03-14T12:00:00Z"}])
        assert lake.table("t").scan().read_all().to_pylist() == [{"Id": 1, "UtcTime": START}]

"""Drive the command line: inside this process, and once as a user would."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import click
import orjson
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

import tidelake
from tests.support.servers import S3Server
from tidelake.cli.catalog_rows import Listing
from tidelake.cli.commands.options import open_object
from tidelake.cli.inspect import inspect_extent
from tidelake.cli.main import COMMANDS, main
from tidelake.errors import InvalidInputError, NotFoundError, QueryError, TidelakeError
from tidelake.format import FORMATS, WriteOptions, segment_format
from tidelake.model.schema import Schema
from tidelake.model.settings import FORMATS as FORMAT_NAMES
from tidelake.model.settings import extent_format
from tidelake.objects import ObjectStore, open_store
from tidelake.query.advice import how_to_read_less
from tidelake.runtime import notices

SCHEMA = Schema.of({"ts": "timestamp", "service": "string"})


def write(store: ObjectStore, key: str) -> None:
    columns = [pa.array(range(100), pa.timestamp("us", tz="UTC")), pa.array(["auth", "web"] * 50)]
    options = WriteOptions(block_rows=25)
    writer = segment_format("tlm").start_extent(store, key, SCHEMA, extent_id="e1", options=options)
    writer.append(pa.RecordBatch.from_arrays(columns, schema=SCHEMA.arrow))
    writer.finish()


@pytest.fixture
def extent(tmp_path: Path) -> Path:
    """Return the path of an extent."""
    write(open_store(tmp_path), "a.tlm")
    return tmp_path / "a.tlm"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_version_is_the_packages() -> None:
    assert (run("--version").output, run("--version").exit_code) == (f"tidelake {tidelake.__version__}\n", 0)


def test_every_command_has_help_with_an_example() -> None:
    assert set(COMMANDS) >= {"inspect", "demo"}
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        assert command.get_short_help_str(limit=200) in run("--help").output, name
        assert f"tidelake {name}" in run(name, "--help").output.partition("Example")[2], name


def test_inspect_shows_a_person_the_extent(extent: Path) -> None:
    result = run("inspect", extent)
    assert (result.exit_code, result.stderr) == (0, "")
    for text in ("e1", "a.tlm, tlm v2", "100 rows in 4 blocks", "ok: all 8 pieces match", "'auth' … 'web'"):
        assert text in result.stdout


def test_inspect_gives_machines_the_librarys_report(extent: Path) -> None:
    result = run("inspect", extent, "--json")
    report = inspect_extent(open_store(extent.parent), "a.tlm")
    assert (result.exit_code, orjson.loads(result.stdout)) == (0, orjson.loads(orjson.dumps(report.to_json())))


def test_inspect_shows_the_report_and_fails_when_bytes_differ(extent: Path) -> None:
    piece = inspect_extent(open_store(extent.parent), "a.tlm").blocks[2].pieces["service"]
    data = bytearray(extent.read_bytes())
    data[piece.offset] ^= 255
    extent.write_bytes(data)
    for arguments in ([], ["--json"]):
        result = run("inspect", extent, *arguments)
        assert result.exit_code == 1
        assert result.stderr == "tidelake: checksum mismatch object=a.tlm block=2 column=service mismatches=1\n"
        assert "service" in result.stdout
    assert orjson.loads(result.stdout)["checksums"]["mismatches"] == [{"block": 2, "column": "service"}]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("missing.tlm", None, "no such object"),
        ("folder/missing.tlm", None, "no such folder"),
        ("text.txt", b"hello, world", "no known format"),
        ("empty.tlm", b"", "no known format"),
        ("torn.tlm", b"KYMA\x02ARROW1", "not a readable extent"),
        ("torn.parquet", b"PAR1PAR1", "not a readable extent"),
    ],
)
def test_inspect_says_on_one_line_what_is_wrong(tmp_path: Path, name: str, data: bytes | None, message: str) -> None:
    if data is not None:
        (tmp_path / name).write_bytes(data)
    result = run("inspect", tmp_path / name)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"tidelake: {message} ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "folder").exists()


@pytest.mark.parametrize("arguments", [["inspect"], ["inspect", "a", "b"], ["inspect", "a", "--xml"], ["no-such"]])
def test_wrong_usage_exits_with_two(arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage: " in result.stderr


def test_inspect_reads_from_a_bucket(s3: S3Server, s3_store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    write(s3_store, "a.tlm")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.secret)
    result = run("inspect", f"{s3_store.url}/a.tlm", "--endpoint", s3.endpoint)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "ok: all 8 pieces match" in result.stdout


@pytest.mark.parametrize(
    ("place", "url", "key"),
    [
        ("a.tlm", Path().absolute().as_uri(), "a.tlm"),
        ("./a.tlm", Path().absolute().as_uri(), "a.tlm"),
        ("/a.tlm", "file:///", "a.tlm"),
        ("/tmp/a.tlm", "file:///tmp", "a.tlm"),
        ("file:///tmp/a.tlm", "file:///tmp", "a.tlm"),
        ("s3://bucket/a.tlm", "s3://bucket", "a.tlm"),
        ("s3://bucket/x/y/a.tlm", "s3://bucket/x/y", "a.tlm"),
    ],
)
def test_open_object_finds_the_store_and_the_key(place: str, url: str, key: str) -> None:
    store, found = open_object(place)
    assert (store.url, found) == (url, key)


@pytest.mark.parametrize("place", ["", "folder/", "s3://bucket", "s3://bucket/", "ftp://host/a.tlm", "file://a.tlm"])
def test_open_object_refuses_what_names_no_object(place: str) -> None:
    with pytest.raises((InvalidInputError, NotFoundError)):
        open_object(place)


def test_real_process_prints_utf8_and_exits_cleanly(extent: Path) -> None:
    whole = subprocess.run([sys.executable, "-m", "tidelake", "inspect", extent], capture_output=True, check=False)
    assert (whole.returncode, whole.stderr) == (0, b"")
    assert "'auth' … 'web'" in whole.stdout.decode()
    missing = subprocess.run([sys.executable, "-m", "tidelake", "inspect", "nothing"], capture_output=True, check=False)
    assert (missing.returncode, missing.stdout) == (1, b"")
    assert missing.stderr.startswith(b"tidelake: no such object key=nothing ")


def test_help_starts_without_what_only_some_commands_need() -> None:
    code = """if True:
        import sys
        from click.testing import CliRunner
        from tidelake.cli.main import main
        assert CliRunner().invoke(main, ["inspect", "--help"]).exit_code == 0
        print(sorted({"numba", "numpy", "obstore", "pyarrow", "rich"} & set(sys.modules)))
    """
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert found.stdout == b"[]\n"


ENGINES = {"cbor2", "duckdb", "numba", "numpy", "pandas", "pyarrow", "pyspark", "sqlglot"}

LOOK = """if True:
    import sys
    from click.testing import CliRunner
    from tidelake.cli.main import main
    for command in sys.argv[1].split(";"):
        result = CliRunner().invoke(main, command.split(","))
        assert result.exit_code == 0, result.output
    print(" ".join(sys.modules))
"""


def imported_by(*commands: tuple[str, ...]) -> set[str]:
    """Return the libraries that a fresh process has imported after some commands."""
    asked = ";".join(map(",".join, commands))
    found = subprocess.run([sys.executable, "-c", LOOK, asked], capture_output=True, check=True, text=True)
    return ENGINES & set(found.stdout.split())


def test_looking_into_a_lake_waits_for_no_engine(lake_folder: Path) -> None:
    with tidelake.connect(lake_folder) as lake:
        lake.table("obs.logs").flush()  # a second extent: what is known of columns is merged
    where = ("--lake", str(lake_folder))
    commands = [("tables",), ("describe", "obs.logs"), ("history", "obs.logs"), ("extents", "obs.logs"), ("init",)]
    assert imported_by(*((*command, *where) for command in commands)) == set()
    assert imported_by(*((*command, "--json", *where) for command in commands[:-1])) == set()


def test_making_a_lake_and_a_table_waits_for_no_engine(tmp_path: Path) -> None:
    where = ("--lake", str(tmp_path / "new"))
    table = ("create", "obs.logs", "ts:timestamp", "n:long", "--retention", "30d", "--format", "parquet")
    assert imported_by(("init", *where), (*table, *where), ("tables", *where)) == set()
    series = ("create", "m.cpu", "ts:timestamp", "device:string", "--bucket", "1m", "--entity", "device")
    assert imported_by((*series, *where)) == {"numpy"}


def test_the_formats_that_a_table_may_be_told_are_those_there_are() -> None:
    assert {extent_format(name) for name in FORMAT_NAMES} == set(FORMATS)


def test_what_explains_and_inspects_waits_for_no_engine_that_it_does_not_use(lake_folder: Path) -> None:
    (extent,) = lake_folder.rglob("*.tlm")
    assert imported_by(("inspect", str(extent))) & {"duckdb", "numba", "sqlglot"} == set()
    question = "obs.logs|where n > 5"

    assert imported_by(("explain", question, "--lake", str(lake_folder))) & {"duckdb", "numba"} == set()


@pytest.fixture
def lake_folder(tmp_path: Path) -> Path:
    """Return the folder of a lake with one table of two snapshots."""
    folder = tmp_path / "lake"
    with tidelake.connect(folder) as lake:
        table = lake.create_table("obs.logs", {"ts": "timestamp", "n": "long"})
        table.append([{"ts": "2026-01-01T00:00:00Z", "n": 1}])
        table.append(pa.table({"ts": pa.array(range(2000), pa.timestamp("us", tz="UTC")), "n": range(2000)}))
    return folder


def test_tables_lists_tables_for_people_and_machines(lake_folder: Path) -> None:
    shown = run("tables", "--lake", lake_folder)
    assert (shown.exit_code, "obs.logs" in shown.output, "2,001" in shown.output) == (0, True, True)
    rows = orjson.loads(run("tables", "--lake", lake_folder, "--json").output)
    assert [(row["table"], row["rows"], row["hot_rows"], row["extents"]) for row in rows] == [("obs.logs", 2001, 1, 1)]


@pytest.mark.parametrize("width", [50, 80, 120])
def test_a_narrow_listing_leaves_columns_out_and_cuts_no_number(width: int) -> None:
    rows = [("a_name_that_is_rather_long", 1234567, 12345, "2026-01-01T00:00:00Z", 3)]
    keys = ("column", "nulls", "hot_rows", "changed", "extents")
    console = Console(file=io.StringIO(), width=width)
    console.print(Listing("title", keys, rows, spare=("extents", "changed")).to_table(width))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert ("1,234,567" in shown, "12,345" in shown, "a_name_that" in shown) == (True, True, True)
    assert ("no room for extents, changed: --json has all" in shown) == (width == 50)
    assert ("2026-01-01 00:00:00" in shown) == (width > 50)


def test_query_draws_what_render_asks_for(lake_folder: Path) -> None:
    question = "obs.logs | summarize c = count() by big = n > 1000 | render barchart"
    assert "█" in run("query", question, "--lake", lake_folder).stdout
    assert "█" not in run("query", question, "--format", "table", "--lake", lake_folder).stdout
    none = "obs.logs | where n < 0 | summarize c = count() by n | render barchart"
    assert "0 rows" in run("query", none, "--lake", lake_folder).stdout


def test_what_needs_a_library_that_is_not_there_says_how_to_install_it(lake_folder: Path) -> None:
    code = """if True:
        import sys
        sys.modules["pyspark"] = None
        from click.testing import CliRunner
        from tidelake.cli.main import main
        lake = ["--lake", sys.argv[1]]
        load, ask = ["load", "t", "a.ndjson"], ["query", "obs.logs", "--engine", "spark"]
        for command in (["demo"], load + lake, ask + lake, ["shell"] + lake):
            result = CliRunner().invoke(main, command, input=".engine spark\\nobs.logs\\n")
            print(result.exit_code, result.stderr, end="")
    """
    command = [sys.executable, "-c", code, str(lake_folder)]
    found = subprocess.run(command, capture_output=True, check=True, text=True, cwd=lake_folder.parent).stdout
    if "Java" in found:
        found = found.partition("\n")[2]
    lines = set(found.splitlines())
    assert lines <= {f"1 {who}this needs pyspark: pip install 'tidelake[spark]'" for who in ("tidelake: ", "")}
    assert not (lake_folder.parent / "demo-lake").exists()


def test_a_terminal_that_lacks_letters_stops_nothing(extent: Path) -> None:
    command = [sys.executable, "-m", "tidelake", "inspect", str(extent)]
    found = subprocess.run(command, capture_output=True, check=True, env={**os.environ, "PYTHONIOENCODING": "latin-1"})
    assert (b"'auth' ? 'web'" in found.stdout, found.stderr) == (True, b"")


def test_compiling_for_long_is_told_once() -> None:
    told: list[str] = []
    notices.tell_with(told.append)
    try:
        notices.compiling()
        assert told == []
        notices._since = -1e9
        notices.compiling()
        notices.compiling()
        assert told == [notices.NOTICE]
    finally:
        notices.tell_with(None)


def test_history_lists_snapshots_newest_first(lake_folder: Path) -> None:
    rows = orjson.loads(run("history", "obs.logs", "--lake", lake_folder, "--json").output)
    assert [(row["snapshot"], row["operation"], row["rows_change"], row["rows"]) for row in rows] == [
        (3, "append", 2000, 2001),
        (2, "append", 1, 1),
        (1, "create", 0, 0),
    ]
    assert "create" in run("history", "obs.logs", "--lake", lake_folder).output


def test_extents_lists_extents_now_and_then(lake_folder: Path) -> None:
    rows = orjson.loads(run("extents", "obs.logs", "--lake", lake_folder, "--json").output)
    assert [(row["rows"], row["blocks"], row["from"], row["to"]) for row in rows] == [
        (2000, 1, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00.001999Z")
    ]
    assert orjson.loads(run("extents", "obs.logs", "--lake", lake_folder, "--snapshot", "2", "--json").output) == []


@pytest.mark.parametrize("arguments", [("tables",), ("history", "obs.logs"), ("extents", "obs.logs")])
def test_listing_a_lake_that_is_not_there_is_one_line_and_makes_nothing(tmp_path: Path, arguments: tuple[str]) -> None:
    result = run(*arguments, "--lake", tmp_path / "nowhere")
    assert (result.exit_code, result.stderr.count("\n"), result.stdout) == (1, 1, "")
    assert "no lake here" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_listing_a_table_that_is_not_there_is_one_line(lake_folder: Path) -> None:
    result = run("history", "obs.nothing", "--lake", lake_folder)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "obs.nothing" in result.stderr


NDJSON = b"""\
{"ts": "2026-03-14T00:00:00Z", "service": "auth", "took": 1.5, "tags": {"az": "a"}}
{"ts": "2026-03-14T00:00:01Z", "service": "web", "took": 2, "tags": {"az": "b"}}
"""


def test_ingest_makes_the_lake_and_the_table(tmp_path: Path) -> None:
    file = tmp_path / "app.ndjson"
    file.write_bytes(NDJSON)
    result = run("--lake", tmp_path / "lake", "ingest", "app.logs", file)
    assert (result.exit_code, result.stdout) == (0, f"{file}: 2 rows into app.logs (hot), snapshot 2\n")
    with tidelake.connect(tmp_path / "lake") as lake:
        logs = lake.table("app.logs")
        types = {column.name: str(column.type) for column in logs.schema}
        assert types == {"ts": "timestamp", "service": "string", "took": "real", "tags": "dynamic"}
        assert logs.scan(["service"]).read_all().to_pydict() == {"service": ["auth", "web"]}


def test_the_first_few_lines_wait_for_no_compiler(tmp_path: Path) -> None:
    (tmp_path / "app.ndjson").write_bytes(NDJSON)
    code = """if True:
        from click.testing import CliRunner
        from tidelake.runtime import notices
        from tidelake.cli.main import main
        notices.QUIET_S = 0
        notices.tell_with(print)
        result = CliRunner().invoke(main, ["ingest", "app.logs", "app.ndjson"])
        print(result.output, end="")
    """
    fresh = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, cwd=tmp_path, env=fresh)
    assert found.stdout == b"app.ndjson: 2 rows into app.logs (hot), snapshot 2\n"


def test_ingest_reads_standard_input(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["ingest", "app.logs", "-", "--lake", str(tmp_path / "lake")], input=NDJSON)
    assert (result.exit_code, result.stdout) == (0, "-: 2 rows into app.logs (hot), snapshot 2\n")


def test_ingest_once_leaves_out_bytes_that_came_before(tmp_path: Path) -> None:
    for name in ("a.ndjson", "b.ndjson"):
        (tmp_path / name).write_bytes(NDJSON)
    files = [tmp_path / "a.ndjson", tmp_path / "b.ndjson"]
    result = run("ingest", "app.logs", *files, "--once", "--json", "--lake", tmp_path / "lake")
    assert [orjson.loads(line)["replayed"] for line in result.stdout.splitlines()] == [False, True]


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("a.ndjson", b'{"service": "auth"}\n', "no time column was found: name it with --time columns=service"),
        (
            "a.ndjson",
            b'{"ts": "1/2/26"}\n',
            "cannot be told apart: say which with --time-format column=ts value='1/2/26'",
        ),
        ("a.ndjson", b"", "no rows to choose a schema from"),
        ("a.ndjson", b'{"ts": "2026-03-14T00:00:00Z"}\n{"ts": \n', "line=2"),
        ("a.json", b'[{"ts": "2026-03-14T00:00:00Z"}, 5]\n', "a line must be an object element=2"),
        ("a.csv", b"ts,who\n2026-03-14,me,too\n", "leave such rows out with --skip-bad line=2"),
        ("a.log", b"hello\n", "say how it is written with --time-format, or --missing-time now"),
        ("a.bin", b"\x00\x01\x02\x03", "the file is not text"),
        ("a.ndjson", None, "no such file"),
        ("a", None, "no such file"),
        (".", None, "a folder is not a file"),
    ],
)
def test_ingest_says_in_one_line_what_is_wrong_and_makes_nothing(
    name: str, data: bytes | None, told: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    if data is not None:
        file.write_bytes(data)
    for flags in ([], ["--once"]):
        result = run("ingest", "app.logs", file, "--lake", tmp_path / "lake", *flags)
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
        assert told in result.stderr
        assert file.name in result.stderr
        assert not (tmp_path / "lake").exists()
    run("init", "--lake", tmp_path / "lake")
    for flags in ([], ["--once"]):
        assert told in run("ingest", "app.logs", file, "--lake", tmp_path / "lake", *flags).stderr
    assert "0 tables" in run("tables", "--lake", tmp_path / "lake").stdout


def test_what_cannot_be_made_leaves_no_empty_lake(tmp_path: Path) -> None:
    (tmp_path / "app.ndjson").write_bytes(NDJSON)
    for command in (
        ["ingest", "a..b", tmp_path / "app.ndjson"],
        ["ingest", "a.b", tmp_path / "app.ndjson", tmp_path / "missing.ndjson"],
        ["create", "a..b", "ts:timestamp"],
        ["create", "a.b", "ts:time"],
        ["shell"],
        ["copy", "a", "b"],
        ["rewrite", "a"],
    ):
        assert run(*command, "--lake", tmp_path / "lake").exit_code == 1, command
        assert not (tmp_path / "lake").exists(), command


def test_create_describe_and_flush_work_on_one_table(tmp_path: Path) -> None:
    lake = ("--lake", tmp_path / "lake")
    assert run("init", *lake).stdout == f"{tmp_path / 'lake'} is a lake with 0 tables\n"
    made = run("create", "obs.logs", "ts:timestamp", "service:string", "took:real", "tags:dynamic", *lake)
    assert made.stdout == "made obs.logs: ts: timestamp, service: string, took: real, tags: dynamic\n"
    (tmp_path / "app.ndjson").write_bytes(NDJSON)
    run("ingest", "obs.logs", tmp_path / "app.ndjson", *lake)
    assert run("flush", "obs.logs", *lake).stdout == "flushed 2 rows of obs.logs into 1 extent, snapshot 3\n"
    described = {row["column"]: row for row in orjson.loads(run("describe", "obs.logs", "--json", *lake).stdout)}
    assert (described["service"]["least"], described["service"]["most"]) == ("auth", "web")
    assert (described["ts"]["role"], described["ts"]["most"]) == ("time", "2026-03-14T00:00:01Z")
    assert "2 rows in 1 extent, 0 hot rows" in run("describe", "obs.logs", *lake).stdout


@pytest.mark.parametrize(
    ("columns", "told"),
    [(["ts"], "'ts' is not a column"), (["a:int", "a:long"], "named twice"), (["a:text"], "text")],
)
def test_create_refuses_what_is_not_a_column(columns: list[str], told: str, tmp_path: Path) -> None:
    result = run("create", "obs.logs", *columns, "--lake", tmp_path / "lake")
    assert (result.exit_code, told in result.stderr, result.stderr.count("\n")) == (1, True, 1)


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["tabels"], 2, "No such command 'tabels', did you mean 'tables'?"),
        (["xyzzy"], 2, "No such command 'xyzzy'."),
        (["describe", "obs.log"], 1, "no such table, did you mean 'obs.logs'? table=obs.log"),
        (["flush", "xyzzy"], 1, "no such table: there are obs.logs table=default.xyzzy"),
        (
            ["extents", "obs.logs", "--snapshot", "99"],
            1,
            "no such snapshot, or it has expired table=obs.logs wanted=99",
        ),
        (["coverage", "obs.logs"], 1, "create it with --bucket table=obs.logs"),
        (["query", "obs.logs", "-o", "out.txt"], 1, "or --format file=out.txt"),
    ],
)
def test_what_is_nearly_right_is_answered_with_what_is(
    arguments: list[str], code: int, told: str, lake_folder: Path
) -> None:
    result = run("--lake", lake_folder, *arguments)
    assert (result.exit_code, told in result.stderr, "Traceback" in result.stderr) == (code, True, False)
    assert result.stderr.count("\n") == (1 if code == 1 else 4)


def test_a_lake_that_is_not_there_is_answered_with_how_to_name_or_make_one(tmp_path: Path) -> None:
    result = run("tables", "--lake", tmp_path / "nowhere")
    assert result.stderr == (
        "tidelake: no lake here: say which with --lake or TIDELAKE_LAKE; init and ingest make one "
        f"folder={tmp_path / 'nowhere'}\n"
    )
    told = run("tables", "--lake", "postgresql://nobody@localhost/nothing").stderr
    assert told == "tidelake: a postgresql catalog needs --objects, a folder or s3://bucket/prefix\n"


@pytest.mark.parametrize("question", ["print n = 40 + 2", "select 40 + 2 as n", "range n from 42 to 42 step 1"])
def test_a_query_that_names_no_table_needs_no_lake(
    question: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("query", question, "--format", "json")
    assert (result.exit_code, result.stderr, orjson.loads(result.stdout)) == (0, "", [{"n": 42}])
    assert "engine" in run("explain", question).stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "question",
    ["app.logs | count", "select * from app.logs", "union *", "search 'x'", "select * from gaps('app.logs')"],
)
def test_a_query_that_looks_for_a_table_says_that_there_is_no_lake(
    question: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("query", question)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("tidelake: no lake here: say which with --lake")
    assert list(tmp_path.iterdir()) == []
    wrong = run("query", "select nope +")
    assert (wrong.exit_code, "no lake" in wrong.stderr) == (1, False)


def test_query_answers_about_the_lake_from_its_catalog(lake_folder: Path) -> None:
    assert "2,001" in run("query", "show tables", "--lake", lake_folder).stdout
    [row] = orjson.loads(run("query", "SHOW TABLES IN obs;", "--lake", lake_folder, "--format", "json").stdout)
    assert (row["table"], row["rows"]) == ("obs.logs", 2001)
    assert run("query", "show tables in x", "--lake", lake_folder, "--format", "json").stdout == "[]\n"
    for question in ("describe obs.logs", "desc obs.logs", "show columns from obs.logs"):
        assert "timestamp" in run("query", question, "--lake", lake_folder).stdout
        told = orjson.loads(run("query", question, "--lake", lake_folder, "--format", "json").stdout)
        assert [row["column"] for row in told][:2] == ["ts", "n"]
    assert "did you mean 'obs.logs'" in run("query", "describe obs.log", "--lake", lake_folder).stderr
    with tidelake.connect(lake_folder) as lake, pytest.raises(QueryError):
        lake.sql("show tables")


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("selct * from obs.logs", "did you mean 'select' for 'selct'?"),
        ("SELET count(*) FROM obs.logs", "did you mean 'select' for 'SELET'?"),
        ("wiht x as (select 1) select * from x", "did you mean 'with' for 'wiht'?"),
        ("descibe obs.logs", "did you mean 'describe' for 'descibe'?"),
    ],
)
def test_a_misspelt_first_word_is_answered_with_the_right_one(question: str, told: str, lake_folder: Path) -> None:
    result = run("query", question, "--lake", lake_folder)
    assert (result.exit_code, told in result.stderr.splitlines()[0]) == (1, True), result.stderr


def test_query_reads_files_with_the_options_of_ingest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sheet.csv").write_text("when;n\n01/02/2026;1\n;2\n02/02/2026;3;4\n")
    asked = ("--file", "sheet.csv", "sheet | project when, n, host", "--format", "ndjson")
    assert "--skip-bad" in run("query", *asked).stderr
    assert "--time-format" in run("query", *asked, "--skip-bad").stderr
    told = ("--time-format", "%d/%m/%Y", "--skip-bad", "--missing-time", "skip", "--set", "host=a")
    result = run("query", *asked, *told)
    assert (result.exit_code, result.stderr) == (0, "")
    assert orjson.loads(result.stdout) == {"when": "2026-02-01T00:00:00Z", "n": 1, "host": "a"}
    lines = run("query", "--file", "sheet.csv", "--lines", "--missing-time", "now", "sheet | count", "--format", "csv")
    assert lines.stdout.split() == ['"Count"', "4"], lines.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["sheet.csv"]
    assert "name one with --file" in run("query", "print 1", "--time", "when").stderr


def test_a_first_word_that_is_right_is_not_corrected(lake_folder: Path) -> None:
    for question in ("obs.logs | where n > 1 x", "select n from obs.logs wher n > 1 x", "select from where"):
        result = run("query", question, "--lake", lake_folder)
        first = question.split()[0]
        assert (result.exit_code, f"for {first!r}" in result.stderr) == (1, False), result.stderr
    told = run("query", "obs.logs | were n > 1", "--lake", lake_folder).stderr  # the word that is wrong, and no other
    assert "did you mean 'where'" in told
    assert "for 'obs" not in told


def test_query_asks_files_that_are_in_no_lake_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scratch").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "scratch"))
    (tmp_path / "my-app.1.ndjson").write_text(
        '{"ts": "2026-01-01T00:00:00Z", "n": 1}\n{"ts": "2026-01-02T00:00:00Z", "n": 2}\n'
    )
    (tmp_path / "web.csv").write_text("Time,status\n2026-01-01 00:00:00,200\n2026-01-01 00:00:01,500\n")
    before = sorted(tmp_path.rglob("*"))
    files = ("--file", "my-app.1.ndjson", "--file", "web.csv")
    result = run("query", *files, "my_app | where n > 1 | project n", "--format", "json")
    assert (result.exit_code, result.stderr, orjson.loads(result.stdout)) == (0, "", [{"n": 2}])
    both = run("query", *files, "select a.n, w.status from my_app a join web w on a.ts = w.Time", "--format", "ndjson")
    assert orjson.loads(both.stdout) == {"n": 1, "status": 200}
    assert "my_app" in run("query", *files, "show tables").stdout
    assert "scan" in run("explain", *files, "web | where status == 500").stdout
    piped = CliRunner().invoke(main, ["query", "--file", "-", "stdin | count"], input='{"ts": "2026-01-01", "n": 1}\n')
    assert (piped.exit_code, "1 row" in piped.stdout) == (0, True), piped.output
    for wrong in (
        ("--file", "none.ndjson", "none"),
        ("--file", "web.csv", "nope"),
        ("--file", "web.csv", "--file", "x"),
    ):
        told = run("query", *wrong)
        assert (told.exit_code, told.stdout, "Traceback" in told.stderr) == (1, "", False)
    assert sorted(tmp_path.rglob("*")) == before


def test_no_text_of_a_query_reaches_a_file(lake_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "web.csv").write_text("ts,status\n2026-01-01 00:00:00,200\n")
    with tidelake.connect(lake_folder) as lake:
        for text in ("select * from web", "select * from 'web.csv'", "select * from read_csv('web.csv')"):
            with pytest.raises(TidelakeError):
                lake.sql(text).to_arrow()
            assert run("query", "--file", "web.csv", text.replace("web", "web2")).exit_code == 1


def test_the_query_itself_may_be_in_a_file(lake_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "q.kql").write_text("obs.logs | count")
    result = run("query", "--file", tmp_path / "q.kql", "--format", "json", "--lake", lake_folder)
    assert list(orjson.loads(result.stdout)[0].values()) == [2001]
    (tmp_path / "q.kql").write_bytes(b"\xff\xfe\x00")
    for file in (tmp_path / "q.kql", tmp_path / "none.kql", tmp_path):
        told = run("query", "--file", file, "--lake", lake_folder)
        assert (told.exit_code, told.stderr.startswith("tidelake: the query's file ")) == (1, True)


def test_an_empty_answer_names_the_time_that_is_held(lake_folder: Path) -> None:
    told = "hint: obs.logs holds rows from 1970-01-01 00:00:00Z to 2026-01-01 00:00:00Z (ts)\n"
    for question in ("obs.logs | where n < 0", "select n from obs.logs where ts > '2030-01-01'"):
        result = run("query", question, "--lake", lake_folder)
        assert (result.exit_code, result.stderr, "0 rows" in result.stdout) == (0, told, True)
        assert run("query", question, "--lake", lake_folder, "--format", "csv").stderr == ""
    assert run("query", "obs.logs | take 1", "--lake", lake_folder).stderr == ""
    assert run("query", "range n from 1 to 0 step 1", "--lake", lake_folder).stderr == ""
    with tidelake.connect(lake_folder) as lake:
        lake.create_table("obs.empty", {"ts": "timestamp"})
    assert run("query", "obs.empty", "--lake", lake_folder).stderr == "hint: obs.empty holds no rows\n"


def test_a_query_that_reads_much_is_told_how_to_read_less(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path / "lake") as lake:
        table = lake.create_table("obs.logs", {"ts": "timestamp", "n": "long", "tags": "dynamic"})
        table.append([{"ts": n, "n": n, "tags": {"a": n}} for n in range(2000)])
        table.flush()
        everything = how_to_read_less(lake.kql("obs.logs | where tags.a == 5"), much_bytes=1)
        assert everything is not None
        assert "narrow the time, where ts > ago(1d)" in everything
        assert "promote the paths of tags" in everything
        narrow = lake.kql("obs.logs | where ts < datetime(2000-01-01) | project n")
        assert how_to_read_less(narrow, much_bytes=1) is None
        assert how_to_read_less(lake.kql("obs.logs")) is None
        assert how_to_read_less(lake.kql("print 1"), much_bytes=0) is None


def test_describe_shows_shares_of_nulls_and_examples_without_reading_objects(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path / "lake") as lake:
        table = lake.create_table("obs.logs", {"ts": "timestamp", "level": "string", "n": "long"})
        table.append([{"ts": n, "level": ("INFO", "WARN", None, "INFO")[n % 4], "n": n} for n in range(2000)])
        table.flush()
    (extent,) = (tmp_path / "lake").rglob("*.tlm")
    extent.unlink()
    rows = orjson.loads(run("describe", "obs.logs", "--lake", tmp_path / "lake", "--json").stdout)
    level = next(row for row in rows if row["column"] == "level")
    assert (level["null_share"], level["distinct"], level["examples"]) == (0.25, 2, "INFO, WARN")
    shown = run("describe", "obs.logs", "--lake", tmp_path / "lake").stdout
    assert ("25.0%" in shown, "INFO, WARN" in shown) == (True, True)
    assert [row["distinct"] for row in rows] == [None, 2, None]  # more than statistics keep
    assert [("many" in line) for line in shown.splitlines() if line.split()[:1] in (["ts"], ["level"], ["n"])] == [
        True, False, True,
    ]  # fmt: skip


@pytest.mark.parametrize("question", ["app.logs | project tags", "select tags from app.logs"])
def test_query_nests_dynamic_values_in_json_and_writes_their_text_in_csv(question: str, tmp_path: Path) -> None:
    lake = ("--lake", tmp_path / "lake")
    (tmp_path / "app.ndjson").write_bytes(NDJSON)
    run("ingest", "app.logs", tmp_path / "app.ndjson", *lake)
    expected = [{"tags": {"az": "a"}}, {"tags": {"az": "b"}}]
    lines = run("query", question, "--format", "ndjson", *lake).stdout.splitlines()
    assert [orjson.loads(line) for line in lines] == expected
    assert orjson.loads(run("query", question, "--format", "json", *lake).stdout) == expected
    assert run("query", question, "--format", "csv", *lake).stdout.splitlines()[1] == '"{""az"":""a""}"'


def test_query_ends_quietly_when_nobody_reads_on_and_when_it_is_stopped(lake_folder: Path) -> None:
    command = [sys.executable, "-m", "tidelake", "--lake", str(lake_folder), "query"]
    many = "select a.n from obs.logs a cross join obs.logs b"
    for question, leave, answer in (
        (many, True, (0, b"")),
        (f"{many} cross join obs.logs c", False, (130, b"tidelake: stopped\n")),
    ):
        with subprocess.Popen([*command, question, "--format", "ndjson"], stdout=PIPE, stderr=PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline().startswith(b'{"n":')  # it is at it
            if leave:
                process.stdout.close()
            else:
                process.send_signal(signal.SIGINT)
            assert (process.wait(60), process.stderr.read()) == answer


def test_a_standard_output_that_is_closed_or_full_is_one_line(lake_folder: Path) -> None:
    command = f"{sys.executable} -m tidelake --lake {lake_folder}"
    for end, told in ((">&-", "standard output is closed"), ("> /dev/full", "No space left on device")):
        whole = f"{command} query 'select n from obs.logs' --format csv {end}"
        found = subprocess.run(whole, shell=True, capture_output=True, text=True, check=False)
        assert (found.returncode, found.stderr.count("\n"), told in found.stderr) == (1, 1, True)


def test_collect_says_what_it_deletes_and_why(tmp_path: Path) -> None:
    where = tmp_path / "lake"
    with tidelake.connect(where) as lake:
        for name in ("kept", "gone"):
            table = lake.create_table(name, {"ts": "timestamp", "n": "long"})
            table.append([{"ts": 0, "n": n} for n in range(2000)])
        lake.drop_table("gone")
        lake.store.put("data/notes.txt", b"a stranger's")
    dry = run("collect", "--dry-run", "--lake", where)
    assert dry.exit_code == 0
    assert "dropped" in dry.output
    assert "data/default/gone/extents/" in dry.output
    assert "1 dropped table would be purged" in dry.output
    told = orjson.loads(run("collect", "--dry-run", "--json", "--lake", where).output)
    assert [(each["reason"], each["size"] > 0) for each in told["objects"]] == [("dropped", True)]
    assert (told["left"], told["foreign"]) == ({"foreign": 1}, ["data/notes.txt"])
    done = run("collect", "--lake", where)
    assert "left: 1 of other programs, such as data/notes.txt" in done.output
    assert "there is nothing to delete" in run("collect", "--lake", where).output
    again = orjson.loads(run("collect", "--json", "--lake", where).output)
    assert (again["deleted"], again["tables"]) == ({}, 0)
    assert run("collect", "--orphan-after", "soon", "--lake", where).exit_code == 1

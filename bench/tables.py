"""Measure a table of logs beside chDB, DuckDB and pyarrow: NDJSON in, and four questions out.

Each row has six fields, the last of which is nested: what nobody predicted. tidelake keeps it in a dynamic column,
chDB in its JSON type, DuckDB as JSON text in Parquet, pyarrow as structs in Parquet. Amounts are in proportion to the
rows asked for. It does not measure small appends: see ``trickle``.
"""

from __future__ import annotations

import gc
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.json
import pyarrow.parquet as pq

from bench.data import ROWS, SPAN_US, START_US, log_table
from bench.peers import is_installed
from bench.report import Ratio, Report
from tidelake.lake import connect

TABLE_ROWS = 1_000_000  # of the 4,000,000 of bench.data
INGEST_GOAL = 150_000  # rows a second and core
RARE_WORD, RARE_ROWS = "segfault", 7
NEEDLE_GOAL = 3.0  # times chDB's time
TEXT_GOAL = 0.1  # of the time of DuckDB over JSON text

METHOD = (
    "A row is one line of NDJSON of about 300 bytes: time, service, level, host, message, and attributes two levels "
    "deep: a status, a duration, a trace and a user.",
    "Ingest is from a file to a table on disk: tidelake syncs it, the peers leave that to the system. Its rate is rows "
    "by seconds of processor time, of all threads, so that it does not depend on the number of cores.",
    "A question gives Arrow: two columns of the rows that match. Every contender has its table open, and answers once "
    "before it is measured.",
    "The path needle is one of about 100,000 users, who has some rows in a million; the word needle is a word that "
    "some rows in a million have. The time range is a hundredth of the day.",
    "chDB orders its table by time and has no index on text or paths. DuckDB and pyarrow read Parquet as DuckDB and "
    "pyarrow write it.",
)

Ask: TypeAlias = Callable[[], pa.Table]


@dataclass(frozen=True, slots=True)
class Needles:
    """What is looked for."""

    user: str
    word: str
    start_us: int
    end_us: int


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to keep the logs: how they come in, and how each question is asked of the table in a folder."""

    name: str
    package: str
    ingest: Callable[[Path, Path], None]
    questions: Callable[[Path, Needles], dict[str, Ask]]

    @property
    def is_installed(self) -> bool:
        return is_installed(self.package)


def run(folder: Path, *, rows: int, rounds: int) -> Report:
    """Measure everything; tables go to a folder that the caller removes."""
    count = max(TABLE_ROWS * rows // ROWS, 1_000)
    folder.mkdir(parents=True, exist_ok=True)
    source, needles = folder / "logs.ndjson", write_logs(folder / "logs.ndjson", count)
    present = [each for each in CONTENDERS if each.is_installed]
    spent = {each.name: [_ingested(folder, each, source) for _ in range(rounds)] for each in present}
    asked = {each.name: each.questions(folder / each.name, needles) for each in present}
    _check_answers(asked)
    seconds = {f"{name}: ingest, wall": tuple(wall for wall, _ in each) for name, each in spent.items()}
    seconds |= {f"{name}: ingest, processor": tuple(cpu for _, cpu in each) for name, each in spent.items()}
    for question in QUESTIONS:
        for name, asks in asked.items():
            seconds[f"{name}: {question}"] = _timed(asks[question], rounds)
    left_out = ", ".join(each.name for each in CONTENDERS if not each.is_installed)
    return Report(
        name="tables",
        workload=f"{count:,} log rows, {source.stat().st_size / 2**20:,.0f} MiB of NDJSON; {', '.join(QUESTIONS)}.",
        ratios=tuple(_ratios(seconds, count, [each.name for each in present])),
        seconds=seconds,
        sizes={each.name: _size(folder / each.name) for each in present},
        method=(*METHOD, _versions(present) + (f" Left out, because not installed: {left_out}." if left_out else "")),
        rates={
            f"{name}: rows in, a second of one core": count / median(cpu for _, cpu in each)
            for name, each in spent.items()
        },
    )


def write_logs(path: Path, rows: int) -> Needles:
    """Write log rows as NDJSON, and choose what to look for in them."""
    import orjson

    logs, number = log_table(rows), 0
    with path.open("wb") as file:
        for batch in logs.to_batches(65_536):
            columns = batch.to_pydict()
            for at in range(batch.num_rows):
                user = f"user-{columns['trace'][at] % 99_991:05}"
                number += 1
                rare = f" {RARE_WORD}" if number % (rows // RARE_ROWS) == 0 else ""
                line = {
                    "ts": columns["ts"][at],
                    "service": columns["service"][at],
                    "level": columns["level"][at],
                    "host": columns["host"][at],
                    "message": columns["message"][at] + rare,
                    "attributes": {
                        "http": {"status": columns["status"][at], "duration_ms": columns["duration_ms"][at]},
                        "trace": {"id": f"{columns['trace'][at]:016x}"},
                        "user": {"id": user},
                    },
                }
                file.write(orjson.dumps(line, option=orjson.OPT_UTC_Z) + b"\n")
    middle = START_US + SPAN_US // 2
    return Needles(user, RARE_WORD, middle, middle + SPAN_US // 100)


def _ingest_ours(source: Path, folder: Path) -> None:
    columns = {"ts": "timestamp", "service": "string", "level": "string", "host": "string", "message": "string"}
    with connect(folder) as lake:
        lake.create_table("logs", {**columns, "attributes": "dynamic"}, time="ts").append(source)


def _ask_ours(folder: Path, needles: Needles) -> dict[str, Ask]:
    table = connect(folder).table("logs")
    path, word = f"attributes['user.id'] == '{needles.user}'", f"message has '{needles.word}'"
    start, end = needles.start_us * 1000, needles.end_us * 1000
    return {
        "path needle": lambda: table.scan(["ts", "message"], path).read_all(),
        "word needle": lambda: table.scan(["ts", "message"], word).read_all(),
        "time range, two columns": lambda: table.scan(["ts", "host"], start=start, end=end).read_all(),
        "all of two columns": lambda: table.scan(["ts", "level"]).read_all(),
    }


def _chdb(folder: Path) -> Any:
    from chdb import session

    return session.Session(str(folder))


_CHDB_TYPES = "ts DateTime64(6, 'UTC'), service String, level String, host String, message String, attributes JSON"


def _ingest_chdb(source: Path, folder: Path) -> None:
    """Run in a process of its own: chDB has one server a process, which lives as long as that."""
    subprocess.run([sys.executable, "-m", "bench.tables", str(source), str(folder)], check=True)


def _ingest_in_chdb(source: Path, folder: Path) -> None:
    server = _chdb(folder)
    server.query("CREATE DATABASE bench ENGINE = Atomic")
    server.query(f"CREATE TABLE bench.logs ({_CHDB_TYPES}) ENGINE = MergeTree ORDER BY ts")
    types = _CHDB_TYPES.replace("'", "\\'")
    read = f"SELECT * FROM file('{source}', JSONEachRow, '{types}') SETTINGS date_time_input_format = 'best_effort'"
    server.query(f"INSERT INTO bench.logs {read}")
    server.close()


def _ask_chdb(folder: Path, needles: Needles) -> dict[str, Ask]:
    server = _chdb(folder)

    def ask(columns: str, where: str) -> pa.Table:
        found = server.query(f"SELECT {columns} FROM bench.logs WHERE {where}", "ArrowStream")
        return pa.ipc.open_stream(found.bytes()).read_all()

    start, end = (f"fromUnixTimestamp64Micro({each}, 'UTC')" for each in (needles.start_us, needles.end_us))
    path, word = f"attributes.user.id = '{needles.user}'", f"hasToken(message, '{needles.word}')"
    return _in_sql(ask, path, word, f"ts >= {start} AND ts < {end}")


def _in_sql(ask: Callable[[str, str], pa.Table], path: str, word: str, times: str) -> dict[str, Ask]:
    """Return the questions as columns and conditions."""
    return {
        "path needle": lambda: ask("ts, message", path),
        "word needle": lambda: ask("ts, message", word),
        "time range, two columns": lambda: ask("ts, host", times),
        "all of two columns": lambda: ask("ts, level", "true"),
    }


def _ingest_duckdb(source: Path, folder: Path) -> None:
    import duckdb

    folder.mkdir(parents=True)
    texts = ", ".join(f"{name}: 'VARCHAR'" for name in ("service", "level", "host", "message"))
    types = f"{{ts: 'TIMESTAMPTZ', {texts}, attributes: 'JSON'}}"
    read = f"SELECT * FROM read_json('{source}', format = 'newline_delimited', columns = {types})"
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({read}) TO '{folder}/logs.parquet' (COMPRESSION zstd)")


def _ask_duckdb(folder: Path, needles: Needles) -> dict[str, Ask]:
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")

    def ask(columns: str, where: str) -> pa.Table:
        found: pa.Table = connection.sql(
            f"SELECT {columns} FROM '{folder}/logs.parquet' WHERE {where}"
        ).to_arrow_table()
        return found

    start, end = (f"make_timestamptz({each})" for each in (needles.start_us, needles.end_us))
    path = f"attributes ->> '$.user.id' = '{needles.user}'"
    word = f"regexp_matches(message, '\\b{needles.word}\\b', 'i')"
    return _in_sql(ask, path, word, f"ts >= {start} AND ts < {end}")


def _ingest_pyarrow(source: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    user = pa.struct([("id", pa.utf8())])
    http = pa.struct([("status", pa.int64()), ("duration_ms", pa.float64())])
    attributes = pa.struct([("http", http), ("trace", user), ("user", user)])
    texts = [(name, pa.utf8()) for name in ("service", "level", "host", "message")]
    schema = pa.schema([("ts", pa.utf8()), *texts, ("attributes", attributes)])
    rows = pyarrow.json.read_json(source, parse_options=pyarrow.json.ParseOptions(explicit_schema=schema))
    times = pc.strptime(pc.replace_substring_regex(rows["ts"], r"(\.\d+)?Z$", ""), "%Y-%m-%dT%H:%M:%S", "us")
    micros = pc.fill_null(
        pc.extract_regex(rows["ts"], r"\.(?P<us>\d{6})Z$").combine_chunks().field("us").cast(pa.int64()), 0
    )
    whole = pc.add(times.cast(pa.int64()), micros).cast(pa.timestamp("us", "UTC"))
    pq.write_table(rows.set_column(0, "ts", whole), folder / "logs.parquet", compression="zstd")


def _ask_pyarrow(folder: Path, needles: Needles) -> dict[str, Ask]:
    table = ds.dataset(folder / "logs.parquet")
    kind = pa.timestamp("us", "UTC")
    start, end = (pa.scalar(each, pa.int64()).cast(kind) for each in (needles.start_us, needles.end_us))

    def ask(columns: list[str], where: Any) -> pa.Table:
        return table.to_table(columns=columns, filter=where)

    word = pc.match_substring_regex(pc.field("message"), rf"\b{needles.word}\b")
    return {
        "path needle": lambda: ask(["ts", "message"], pc.field("attributes", "user", "id") == needles.user),
        "word needle": lambda: ask(["ts", "message"], word),
        "time range, two columns": lambda: ask(["ts", "host"], (pc.field("ts") >= start) & (pc.field("ts") < end)),
        "all of two columns": lambda: ask(["ts", "level"], None),
    }


OURS = Contender("tidelake", "tidelake", _ingest_ours, _ask_ours)
CHDB = Contender("chDB", "chdb", _ingest_chdb, _ask_chdb)
DUCKDB = Contender("DuckDB on Parquet", "duckdb", _ingest_duckdb, _ask_duckdb)
PYARROW = Contender("pyarrow on Parquet", "pyarrow", _ingest_pyarrow, _ask_pyarrow)
CONTENDERS = (OURS, CHDB, DUCKDB, PYARROW)
QUESTIONS = ("path needle", "word needle", "time range, two columns", "all of two columns")


def _ratios(seconds: Mapping[str, Sequence[float]], rows: int, names: Sequence[str]) -> Iterator[Ratio]:
    def of(name: str, what: str) -> float:
        return median(seconds[f"{name}: {what}"])

    ours = of(OURS.name, "ingest, processor")
    yield Ratio(f"ingest, against {INGEST_GOAL:,} rows a second and core", ours, rows / INGEST_GOAL, "s", 1.0)
    for name in names[1:]:
        yield Ratio(f"ingest, processor time, against {name}", ours, of(name, "ingest, processor"), "s")
    for question in QUESTIONS:
        for name in names[1:]:
            is_needle = question.endswith("needle")
            goal = NEEDLE_GOAL if is_needle and name == CHDB.name else None
            if is_needle and name == DUCKDB.name:
                goal = TEXT_GOAL
            yield Ratio(f"{question}, against {name}", of(OURS.name, question), of(name, question), "s", goal)


def _ingested(folder: Path, contender: Contender, source: Path) -> tuple[float, float]:
    """Ingest into a fresh table; give the seconds on the wall and of the processor."""
    place = folder / contender.name
    shutil.rmtree(place, ignore_errors=True)
    gc.collect()
    spent, began = _processor_s(), time.perf_counter()
    contender.ingest(source, place)
    return time.perf_counter() - began, _processor_s() - spent


def _processor_s() -> float:
    """Return the processor time of this process and of those it waited for."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _check_answers(asked: Mapping[str, Mapping[str, Ask]]) -> None:
    """See that all contenders find as many rows: a faster wrong answer is no answer."""
    for question in QUESTIONS:
        found = {name: asks[question]().num_rows for name, asks in asked.items()}
        if len(set(found.values())) != 1 or not found[OURS.name]:
            raise AssertionError(f"{question}: contenders disagree, {found}")


def _timed(ask: Ask, rounds: int) -> tuple[float, ...]:
    seconds = []
    for _ in range(max(rounds, 3)):
        gc.collect()
        began = time.perf_counter()
        ask()
        seconds.append(time.perf_counter() - began)
    return tuple(seconds)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("**/*") if file.is_file())


def _versions(present: Sequence[Contender]) -> str:
    return ", ".join(f"{each.package} {version(each.package)}" for each in present if each.package != "tidelake") + "."


if __name__ == "__main__":
    _ingest_in_chdb(Path(sys.argv[1]), Path(sys.argv[2]))
    os._exit(0)  # chDB's threads do not end by themselves

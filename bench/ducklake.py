"""Append and merge into DuckLake in a Python of its own, because its extension needs an older DuckDB than ours.

A virtual environment is made in a folder, DuckLake installed there, and this very file run with it; where that fails
the answer is None, and the peer is left out. As a script, it reads what to do as JSON and prints what it found.
Small inserts are kept in DuckLake's own catalog, as its manual has it for streams. It does not import tidelake.
"""

from __future__ import annotations

import glob
import importlib.util
import json
import os
import subprocess
import sys
import time
import venv
from pathlib import Path
from typing import Any

PACKAGES = ("duckdb", "duckdb-extension-ducklake", "duckdb-extension-sqlite-scanner")
PINS = Path(__file__).resolve().parents[1] / "constraints-duckdb-1.5.txt"
INSTALL_WITHIN_S = 300
RUN_WITHIN_S = 1_800
INLINED_ROWS = 1_000  # an insert of fewer stays in the catalog


def measure(folder: Path, columns: dict[str, str], batches: list[list[list[Any]]], asked: str) -> dict[str, Any] | None:
    """Append each batch and then ask for a sum; give the seconds of each, and how many objects there are."""
    return _run(folder, {"columns": columns, "batches": batches, "asked": asked})


def merge(folder: Path, rows: int, batches: list[list[list[Any]]]) -> dict[str, Any] | None:
    """Merge batches of an id, a time in microseconds and a text into so many rows; give the seconds of each."""
    return _run(folder, {"rows": rows, "batches": batches})


def _run(folder: Path, task: dict[str, Any]) -> dict[str, Any] | None:
    python = folder / "venv" / "bin" / "python"
    try:
        venv.create(folder / "venv", with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", str(PINS)]
        subprocess.run([*pip, *PACKAGES], check=True, capture_output=True, timeout=INSTALL_WITHIN_S)
        told = json.dumps({"place": str(folder / "lake"), **task})
        done = subprocess.run(
            [str(python), __file__], input=told, check=True, capture_output=True, text=True, timeout=RUN_WITHIN_S
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found
    except (OSError, subprocess.SubprocessError, ValueError):
        return None


def _connect(place: str) -> Any:
    import duckdb

    os.makedirs(place)
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for name in ("ducklake", "sqlite_scanner"):
        found = importlib.util.find_spec(f"duckdb_extension_{name}")
        place_of = os.path.dirname(str(found and found.origin))
        (extension,) = glob.glob(f"{place_of}/**/*.duckdb_extension", recursive=True)
        connection.execute(f"LOAD '{extension}'")
    options = f"DATA_PATH '{place}/data', DATA_INLINING_ROW_LIMIT {INLINED_ROWS}"
    connection.execute(f"ATTACH 'ducklake:sqlite:{place}/catalog.sqlite' AS lake ({options})")
    return connection


def _main() -> None:
    task = json.load(sys.stdin)
    connection = _connect(task["place"])
    print(json.dumps(_append(connection, task) if "asked" in task else _merge(connection, task)))


def _merge(connection: Any, task: dict[str, Any]) -> dict[str, Any]:
    connection.execute("CREATE TABLE lake.keyed (id BIGINT, ts TIMESTAMPTZ, text VARCHAR)")
    made = "SELECT range, make_timestamptz(1767268800000000), 'note ' || range FROM range(?)"
    connection.execute(f"INSERT INTO lake.keyed {made}", [task["rows"]])
    seconds = []
    for rows in task["batches"]:
        values = ", ".join(["(?::BIGINT, make_timestamptz(?::BIGINT), ?)"] * len(rows))
        statement = (
            f"MERGE INTO lake.keyed AS t USING (SELECT * FROM (VALUES {values}) AS v (id, ts, text)) AS s "
            "ON t.id = s.id WHEN MATCHED THEN UPDATE SET ts = s.ts, text = s.text "
            "WHEN NOT MATCHED THEN INSERT VALUES (s.id, s.ts, s.text)"
        )
        began = time.perf_counter()
        connection.execute(statement, [value for row in rows for value in row])
        seconds.append(time.perf_counter() - began)
    return {"merge": seconds, "rows": connection.execute("SELECT count(*) FROM lake.keyed").fetchall()[0][0]}


def _append(connection: Any, task: dict[str, Any]) -> dict[str, Any]:
    columns = ", ".join(f'"{name}" {kind}' for name, kind in task["columns"].items())
    connection.execute(f"CREATE TABLE lake.points ({columns})")
    seconds = []
    for rows in task["batches"]:
        row = f"({', '.join('?' * len(task['columns']))})"
        statement = f"INSERT INTO lake.points VALUES {', '.join([row] * len(rows))}"
        values = [value for each in rows for value in each]
        began = time.perf_counter()
        connection.execute(statement, values)
        seconds.append(time.perf_counter() - began)
    sums = []
    for _ in range(5):
        began = time.perf_counter()
        connection.execute(f'SELECT sum("{task["asked"]}") FROM lake.points').fetchall()
        sums.append(time.perf_counter() - began)
    files = [file for file in glob.glob(f"{task['place']}/**/*", recursive=True) if os.path.isfile(file)]
    return {"append": seconds, "sum": sums, "objects": len(files)}


if __name__ == "__main__":
    _main()

"""Make TPC-H with the benchmark's own generator, as DuckDB carries it, with its queries and their published answers.

The extension needs an older DuckDB than ours, so it is installed in a folder of its own under ``build``, once for each
set of versions, and this very file runs there as a script. Money and quantities become reals and dates timestamps,
because those are the types that a lake has. It does not import tidelake, and where it cannot install it fails.
"""

from __future__ import annotations

import glob
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PINS = ROOT / "constraints-duckdb-1.5.txt"
PACKAGES = ("duckdb", "duckdb-extension-tpch")
TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")
INSTALL_WITHIN_S = 300
RUN_WITHIN_S = 120


def tpch(scale: float) -> Path:
    """Return the folder with a Parquet file for each table and ``queries.json``, made if it is not there."""
    stamp = hashlib.sha256(PINS.read_bytes() + Path(__file__).read_bytes()).hexdigest()[:12]
    made = ROOT / "build" / "tpch" / f"{stamp}-{scale}"
    if made.exists():
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=made.parent) as folder:
        home, rows = Path(folder, "packages"), Path(folder, "rows")
        rows.mkdir()
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        _run([*pip, "--target", f"{home}", "--constraint", f"{PINS}", *PACKAGES], within_s=INSTALL_WITHIN_S)
        here = {**os.environ, "PYTHONPATH": f"{home}"}
        _run([sys.executable, __file__, f"{rows}", f"{scale}"], within_s=RUN_WITHIN_S, env=here)
        try:
            rows.rename(made)
        except OSError:  # another run made it meanwhile
            assert made.exists()
    return made


def _run(command: list[str], *, within_s: float, **options: Any) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=within_s, **options)
    if done.returncode:
        raise RuntimeError(f"TPC-H could not be made: {' '.join(command[1:4])} said\n{done.stderr[-2000:]}")


def _generate(folder: str, scale: float) -> None:
    import duckdb

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    package = importlib.util.find_spec("duckdb_extension_tpch")
    (extension,) = glob.glob(
        f"{os.path.dirname(str(package and package.origin))}/**/*.duckdb_extension", recursive=True
    )
    connection.execute(f"LOAD '{extension}'")
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute(f"CALL dbgen(sf = {scale})")
    for name in TABLES:
        columns = connection.sql(f"SELECT * FROM {name} LIMIT 0")
        chosen = ", ".join(map(_chosen, columns.columns, map(str, columns.types)))
        connection.execute(f"COPY (SELECT {chosen} FROM {name}) TO '{folder}/{name}.parquet' (FORMAT parquet)")
    queries = dict(connection.execute("SELECT query_nr, query FROM tpch_queries()").fetchall())
    published = "SELECT query_nr, answer FROM tpch_answers() WHERE scale_factor = ?"
    answers = dict(connection.execute(published, [scale]).fetchall())
    found = {number: {"query": queries[number], "answer": answers[number]} for number in queries}
    Path(folder, "queries.json").write_text(json.dumps(found))


def _chosen(name: str, kind: str) -> str:
    target = "DOUBLE" if kind.startswith("DECIMAL") else "TIMESTAMPTZ" if kind == "DATE" else kind
    return f"CAST({name} AS {target}) AS {name}"


if __name__ == "__main__":
    _generate(sys.argv[1], float(sys.argv[2]))

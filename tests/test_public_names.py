"""Hold the front door to exactly the names that users type."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tidelake
import tidelake.format


def test_public_names_are_these() -> None:
    assert sorted(tidelake.__all__) == [
        "AlreadyExistsError",
        "CommitUnknownError",
        "ConflictError",
        "CorruptError",
        "InvalidInputError",
        "InvalidRangeError",
        "Lake",
        "NotFoundError",
        "OverlapError",
        "QueryError",
        "Schema",
        "SchemaError",
        "StorageError",
        "Table",
        "TidelakeError",
        "UnavailableError",
        "__version__",
        "col",
        "connect",
        "cosine_distance",
        "decode",
        "inner_product",
        "l2_distance",
    ]


def test_public_names_all_exist() -> None:
    for module in (tidelake, tidelake.format):
        assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_import_loads_nothing_heavy() -> None:
    script = "import sys, tidelake; print({'numba', 'pyarrow', 'pyspark', 'duckdb'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert shown == "set()\n"


def test_reading_an_extent_loads_no_compiler() -> None:
    script = "import sys, tidelake.format; print({'numba', 'pyspark', 'duckdb'} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert shown == "set()\n"


def test_a_writer_whose_table_was_widened_loads_no_compiler(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path) as lake:
        lake.create_table("logs", {"ts": "timestamp", "message": "string", "tags": "dynamic"}, time="ts")
    script = (
        "import sys, datetime, pyarrow as pa, tidelake\n"
        f"table = tidelake.connect({str(tmp_path)!r}).table('logs')\n"
        "times = pa.array([datetime.datetime.now(datetime.UTC)], pa.timestamp('us', 'UTC'))\n"
        "table.append(pa.table({'message': ['up'], 'ts': times}))\n"
        "print({'numba', 'pyspark', 'duckdb'} & set(sys.modules))"
    )
    shown = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert shown == "set()\n"
    with tidelake.connect(tmp_path) as lake:
        (row,) = lake.table("logs").scan().read_all().to_pylist()
        assert (row["message"], row["tags"]) == ("up", None)

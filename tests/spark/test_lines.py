"""Read, write, stream and use the catalog on each line of Spark, and find what the newest one gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tidelake.spark.jvm.planning import ASKED, STEPS

ROOT = Path(__file__).parents[2]
DRIVER = Path(__file__).parent / "lines_driver.py"
INSTALL_S, RUN_S = 1800, 1800  # a busy machine takes ten times as long as a quiet one
SLOW_PLANS, ROWS_ONE_BY_ONE = "tidelake: every plan starts Python processes", "tidelake: rows reach Spark one by one"
MISSING = {"4.0": [SLOW_PLANS, ROWS_ONE_BY_ONE], "4.1": [SLOW_PLANS, ROWS_ONE_BY_ONE], "4.2": [], "4.3": []}


@pytest.fixture(scope="module")
def newest(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what the Spark of this environment says."""
    return said_by(sys.executable, tmp_path_factory.mktemp("newest"))


@pytest.mark.torture
@pytest.mark.parametrize("line", ["4.0", "4.1", "4.2"])
def test_an_older_line_answers_as_the_newest_does(line: str, newest: dict[str, Any], tmp_path: Path) -> None:
    found = said_by(environment(tmp_path / "venv", f"pyspark~={line}.0"), tmp_path)
    assert found.pop("version").startswith(line)
    assert found.pop("missing") == MISSING[line]
    assert found == {name: value for name, value in newest.items() if name not in ("version", "missing")}


@pytest.mark.torture
@pytest.mark.parametrize("version", ["3.5.9"])
def test_any_other_spark_is_refused_in_one_line(version: str, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=INSTALL_S)
    pip(venv, "-e", str(ROOT))
    pip(venv, "--no-deps", f"pyspark=={version}")
    done = subprocess.run(
        [str(venv / "bin" / "python"), "-c", "import tidelake.spark"], capture_output=True, text=True, check=False,
        timeout=RUN_S,
    )  # fmt: skip
    assert done.stderr.splitlines()[-1].endswith(
        f"tidelake needs pyspark 4.0 to 4.3: pip install 'tidelake[spark]' found={version}"
    )


def test_steps_of_a_plan_are_functions_on_this_spark() -> None:
    modules = [__import__(STEPS + step, fromlist=["_main"]) for step in ASKED]
    assert all(callable(module._main) for module in modules)


def environment(venv: Path, spark: str) -> str:
    """Make an environment with this package and a Spark, by the package's own bounds; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=INSTALL_S)
    pip(venv, "-e", f"{ROOT}[spark]", spark)
    return str(venv / "bin" / "python")


def pip(venv: Path, *arguments: str) -> None:
    """Install with pinned versions, but for Spark's own."""
    pinned = venv / "constraints.txt"
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned.write_text("\n".join(line for line in lines if not line.startswith(("pyspark=", "py4j="))))
    command = [str(venv / "bin" / "pip"), "install", "--quiet", "--constraint", str(pinned), *arguments]
    subprocess.run(command, check=True, timeout=INSTALL_S)


def said_by(python: str, folder: Path) -> dict[str, Any]:
    """Run the driver with a Python, and return what it found."""
    environment = {name: value for name, value in os.environ.items() if name not in ("SPARK_HOME", "PYTHONPATH")}
    environment |= {"PYTHONPATH": str(ROOT / "src"), "PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [python, str(DRIVER), str(folder)], env=environment, cwd=folder, capture_output=True, text=True, check=False,
        timeout=RUN_S,
    )  # fmt: skip
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("found")] or [done.stderr[-3000:]]
    found: dict[str, Any] = json.loads(line.removeprefix("found"))
    return found


OLDER = """
import sys
from pyspark.sql import datasource, types
for name in ["Filter", "Not", "In", "EqualTo", "GreaterThan", "StringStartsWith", "DataSourceStreamArrowWriter"]:
    delattr(datasource, name)
del types.TimeType, datasource.DataSourceReader.pushFilters
sys.modules["pyspark.sql.streaming.datasource"] = None
from tidelake.model.schema import Schema
from tidelake.spark import filters, lines, reading, streaming, types as own, writing
from tidelake.spark.catalog import conditions
schema = Schema.of({"n": "long", "s": "string"})
column = lambda name: {"column": [name]}
more = {"name": ">", "children": [column("n"), {"type": "bigint", "value": 3}]}
begins = {"name": "STARTS_WITH", "children": [column("s"), {"type": "string", "value": "a"}]}
print(conditions.meant({"name": "OR", "children": [{"name": "NOT", "children": [more]}, begins]}, schema))
print(lines.HAS_LIMITS, lines.TIMES_OF_DAY, issubclass(writing.StreamWriter, datasource.DataSourceArrowWriter))
"""


def test_what_an_older_line_lacks_has_a_stand_in() -> None:
    found = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=RUN_S)
        for code in (OLDER, OLDER[: OLDER.index("for name")] + OLDER[OLDER.index("from tidelake.model") :])
    ]
    older, newest = (each.stdout.splitlines() for each in found)
    assert older[:1] == newest[:1] == ["Meant(predicate=(not (n > 3) or s startswith_cs 'a'), is_exact=True)"]
    assert older[1] == "False () True"

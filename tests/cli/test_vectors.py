"""Check the commands about vectors: index, nearest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import tidelake
from tests.vectors.support import COLUMNS, SIZE, arrow, clustered
from tidelake.cli.main import main


@pytest.fixture
def where(tmp_path: Path) -> str:
    with tidelake.connect(tmp_path / "lake") as lake:
        lake.create_table("docs", COLUMNS, time="ts").append(arrow(clustered(1_200)))
    return str(tmp_path / "lake")


def told(where: str, *words: str, given: str | None = None) -> Result:
    return CliRunner().invoke(main, [*words, "--lake", where], input=given)


def test_index_and_nearest(where: str) -> None:
    assert "v is indexed by l2" in told(where, "index", "docs", "v", "--metric", "l2").stdout
    assert "v: l2, 12 dimensions, waiting" in told(where, "index", "docs").stdout
    query = json.dumps([float(x) for x in clustered(1_200)[17]])
    near = told(where, "nearest", "docs", "v", query, "-k", "2", "--columns", "id", "--format", "ndjson")
    assert json.loads(near.stdout.splitlines()[0]) == {"id": 17, "_distance": 0.0}
    piped = told(where, "nearest", "docs", "v", "--where", "id == 3", "--format", "json", given=query)
    assert [row["id"] for row in json.loads(piped.stdout)] == [3]
    assert "v" not in json.loads(piped.stdout)[0]
    assert "1,200 rows measured" in told(where, "nearest", "docs", "v", query, "--explain").stdout
    assert "no index any more" in told(where, "index", "docs", "v", "--drop").stdout
    assert told(where, "index", "docs").stdout == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nearest", "docs", "v", "[1, 2"), "JSON list of numbers"),
        (("nearest", "docs", "v", "[1, 2]"), "as many numbers"),
        (("nearest", "docs", "v", json.dumps([1] * SIZE), "-k", "0"), "k is a whole number"),
        (("nearest", "docs", "w", "[1, 2]"), "no column 'w'"),
        (("nearest", "nope", "w", "[1, 2]"), "nope"),
        (("index", "docs", "tag"), "not a column of vectors"),
        (("index", "docs", "--drop"), "name the column"),
        (("index", "docs", "v", "--drop"), "no index"),
    ],
)
def test_bad_words_say_what_is_wrong(where: str, words: tuple[str, ...], message: str) -> None:
    result = told(where, *words)
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.count("\n") <= 2

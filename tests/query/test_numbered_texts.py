"""Texts that extents keep as numbers into dictionaries reach the engine as such: with the same answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import tidelake
from tidelake import Lake
from tidelake.query.engines import small, streams
from tidelake.query.engines.streams import NUMBERED
from tidelake.query.session import run
from tidelake.write.alter import change_settings

START = datetime(2026, 1, 1, tzinfo=UTC)
WORDS = ("a", "b", None, "", "Ab c", "é")
QUESTIONS = (
    "select word, other, count(*) n, sum(n) s from logs group by word, other order by word, other",
    "select count(*) c, min(word) low, max(other) high from logs where word in ('a', 'é') and other is not null",
    "select n, word from logs where word is null or other = 'x1' order by n limit 50",
    "select word || '!' w, count(distinct other) c from logs where word <> 'a' group by 1 order by 1",
    "select l.word, r.other, count(*) c from logs l join logs r on l.word = r.other group by 1, 2 order by 1, 2",
    "select count(*) c from logs where word like 'A%' or not (other >= 'x2')",
    "select word from logs where n < 0",
)
KQL = (
    "logs | where word has 'ab' or other startswith 'x' | summarize n = count() by word, other | order by word, other",
    "logs | where word contains 'B' | summarize n = count(), m = max(n) by other | order by other asc",
    "logs | where isempty(word) and other !endswith '1' | summarize count() by other | order by other asc",
)


def rows(first: int, count: int, words: tuple[str | None, ...] = WORDS) -> list[dict[str, Any]]:
    return [
        {"ts": START + timedelta(seconds=n), "n": n, "word": words[n * 7 % len(words)], "other": f"x{n % 3}"}
        for n in range(first, first + count)
    ]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    monkeypatch.setattr(small, "ROWS", -1)
    with tidelake.connect(tmp_path / "lake", upkeep=False) as opened:
        columns = {"ts": "timestamp", "n": "long", "word": "string", "other": "string"}
        table = opened.create_table("logs", columns, time="ts", format="tlm3")
        for first, words in ((0, WORDS), (3000, ("other", "words", None)), (6000, (None,)), (9000, WORDS)):
            table.append(rows(first, 3000, words))
            table.flush()
        yield opened


def agree(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> list[frozenset[int]]:
    """See that questions have the same answer in both forms; return which columns were given as numbers."""
    numbered = []
    for language, texts in (("sql", QUESTIONS), ("kql", KQL)):
        for text in texts:
            answers = []
            for least in (0, 1 << 60):
                monkeypatch.setattr(streams, "NUMBERED_ROWS", least)
                result = run(lake, text, language=language, engine="local")  # type: ignore[arg-type]
                answers += [result.to_arrow(), run(lake, text, language=language, engine="local").to_arrow()]  # type: ignore[arg-type]
                scan = result._scans[0]
                stream = streams.Stream(scan, scan.table.footers, lambda: None, language)
                numbered.append(frozenset(at for at, field in enumerate(stream.schema) if field.type == NUMBERED))
            plain = run(lake, text, language=language, engine="local", prune=False).to_arrow()  # type: ignore[arg-type]
            assert all(answer.schema.equals(plain.schema) for answer in answers), text
            assert all(answer.to_pylist() == plain.to_pylist() for answer in answers), text
    return numbered


def test_answers_are_the_same_whether_texts_are_numbers_or_not(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert any(agree(lake, monkeypatch))
    table = lake.table("logs")
    table.append(rows(12_000, 50))  # hot
    table.delete("n >= 100 and n < 160")
    assert any(agree(lake, monkeypatch))


def test_texts_are_plain_where_an_extent_has_no_dictionary(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = lake.table("logs")
    table.append([{**row, "word": f"{row['n']} is a word of its own, {row['n'] ** 5}"} for row in rows(20_000, 3000)])
    table.flush()
    change_settings(table.handle, {"format": "tlm2"})
    table.append(rows(30_000, 3000))
    table.flush()
    assert not any(agree(lake, monkeypatch))


@pytest.mark.parametrize("threads", [1, 2])
def test_the_engine_never_takes_one_batches_dictionary_for_that_of_another(threads: int) -> None:
    expected: Counter[str | None] = Counter()

    def batches() -> Iterator[pa.RecordBatch]:
        rng = np.random.default_rng(threads)
        for at in range(60):  # whose dictionaries come to lie where earlier ones lay
            words = [
                f"{'a word that does not fit into a string of its own ' * (at % 2)}{at}-{each}" for each in range(7)
            ]
            numbers = pa.array(rng.integers(0, 7, 3000).astype(np.int32), mask=rng.random(3000) < 0.1)
            column = pa.DictionaryArray.from_arrays(numbers, pa.array(words))
            expected.update(column.to_pylist())
            yield pa.RecordBatch.from_arrays([column], ["word"])

    connection = duckdb.connect(config={"threads": threads})
    connection.register("rows", pa.RecordBatchReader.from_batches(pa.schema([("word", NUMBERED)]), batches()))
    found = connection.execute("select word, count(*) from rows group by word").fetchall()
    assert dict(found) == expected

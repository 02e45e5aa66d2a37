"""Run the demo small, and check that what it claims is so."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner
from rich.console import Console

from tidelake import cli, demo
from tidelake.commands import options
from tidelake.format import segment_format
from tidelake.objects import ObjectStore

ROWS = 200_000
TLM = segment_format("tlm")


@pytest.fixture(scope="module")
def batches() -> list[pa.RecordBatch]:
    """Give the rows of a small demo."""
    return list(demo.log_batches(ROWS))


def test_rows_are_the_same_every_time(batches: list[pa.RecordBatch]) -> None:
    assert pa.Table.from_batches(batches).equals(pa.Table.from_batches(list(demo.log_batches(ROWS))))
    assert sum(batch.num_rows for batch in batches) == ROWS


def test_every_search_prunes_and_loses_nothing(memory_store: ObjectStore, batches: list[pa.RecordBatch]) -> None:
    demo.write_extent(TLM, memory_store, batches)
    for predicate in demo.questions(batches):
        pruned = demo.search(memory_store, TLM, predicate)
        whole = demo.search(memory_store, TLM, predicate, prune=False)
        assert pruned.rows == whole.rows, predicate
        assert len(pruned.blocks) < len(whole.blocks) == 4, predicate
        assert pruned.byte_count < whole.byte_count < memory_store.head(demo.KEY).size, predicate
    assert (pruned.rows, pruned.blocks) == (0, ())  # the last one asks for what is not there


def test_run_demo_is_plain_text_when_nobody_watches(tmp_path: Path) -> None:
    sink = io.StringIO()
    demo.run_demo(str(tmp_path / "lake"), Console(file=sink, width=options.PIPE_WIDTH), rows=ROWS)
    text = sink.getvalue()
    assert "\x1b" not in text
    assert "ok: all 40 pieces match" in text
    assert "message contains 'oom'" in text
    assert "0 of 4" in text
    assert (tmp_path / "lake" / demo.KEY).exists()


def test_command_leaves_an_extent_to_inspect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(cli.main, ["demo"])
    assert (result.exit_code, result.stderr) == (0, "")
    assert "Look closer: tidelake inspect demo-lake/demo.tlm" in result.stdout
    assert CliRunner().invoke(cli.main, ["inspect", "demo-lake/demo.tlm"]).exit_code == 0

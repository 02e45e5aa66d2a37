"""Check that a store holds what its catalog names, all of it and nothing else; make what upkeep works on small.

It does not change a lake.
"""

from __future__ import annotations

import pytest

from tidelake.catalog.log import journal
from tidelake.lake import Lake
from tidelake.maintain import compact
from tidelake.objects import COVERAGE_FOLDER, DATA_FOLDER
from tidelake.write import appender, drift, stager


def check_store(lake: Lake, *, quiet: bool = True) -> None:
    """Check that every object that a snapshot can reach is there, and that every object that is there is named.

    In a lake where nobody writes and that was just collected (``quiet``), only snapshots name objects.
    """
    pending = {each.key for each in lake.catalog.pending()}
    named: dict[str, set[str]] = {"held": set(), "garbage": set()}
    for page in lake.catalog.named_keys():
        named[page.why].update(page.keys)
    roots = {DATA_FOLDER, COVERAGE_FOLDER, *(name.partition(".")[0] for name in lake.tables())}
    there = {meta.key for root in roots for meta in lake.store.list(root)}
    there = {key for key in there if not key.rpartition("/")[2].startswith("manifest")}  # copies that nothing relies on
    lost = sorted(named["held"] - there)
    assert not lost, f"a snapshot holds objects that are not there: {lost}"
    known = named["held"] if quiet else named["held"] | named["garbage"] | pending
    folders = () if quiet else tuple(f"{key}/" for key in pending | named["garbage"])
    orphans = sorted(key for key in there - known if not key.startswith(folders))
    assert not orphans, f"objects that nothing names: {orphans}"


def make_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks, slices and hot appends small, so that a few rows meet all of them."""
    monkeypatch.setattr(stager, "BLOCK_ROWS", 4)
    monkeypatch.setattr(stager, "MIN_BLOCK_ROWS", 1)
    monkeypatch.setattr(appender, "HOT_ROWS", 8)
    monkeypatch.setattr(drift, "MIN_MISFITS", 3)
    monkeypatch.setattr(compact, "SLICE_BYTES", 4_000)
    monkeypatch.setattr(journal, "CHECKPOINT_EVERY", 5)

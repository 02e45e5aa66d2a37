"""Check that a store holds what its catalog names, all of it and nothing else.

It does not change anything.
"""

from __future__ import annotations

from tidelake.lake import Lake
from tidelake.objects import COVERAGE_FOLDER, DATA_FOLDER


def check_store(lake: Lake, *, quiet: bool = True) -> None:
    """Check that every object that a snapshot can reach is there, and that every object that is there is named.

    In a lake where nobody writes and that was just collected (``quiet``), only snapshots name objects.
    """
    pending = {each.key for each in lake.catalog.pending()}
    named: dict[str, set[str]] = {"held": set(), "garbage": set()}
    for page in lake.catalog.named_keys():
        named[page.why].update(page.keys)
    there = {meta.key for root in (DATA_FOLDER, COVERAGE_FOLDER) for meta in lake.store.list(root)}
    assert sorted(named["held"] - there) == [], "a snapshot holds objects that are not there"
    known = named["held"] if quiet else named["held"] | named["garbage"] | pending
    folders = () if quiet else tuple(f"{key}/" for key in pending | named["garbage"])
    assert sorted(key for key in there - known if not key.startswith(folders)) == [], "objects that nothing names"

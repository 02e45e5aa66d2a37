"""Hold sealed parts to a plain list of segments, and a rewrite to a cost that does not grow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.errors import NotFoundError
from tidelake.manifest import parts
from tidelake.manifest.manifest_json import (
    ColumnBounds,
    Part,
    PartRef,
    ScopeManifest,
    Segment,
    part_from_bytes,
    to_bytes,
)
from tidelake.manifest.parts import Listed, all_segments, changed
from tidelake.manifest.scalars import Typed

EMPTY = ScopeManifest("app.notes", None, 1, 0, 0)
BOUNDS = ColumnBounds(Typed("Int64", 2**62), Typed("Int64", 2**62 + 5), 0)


def segment(number: int) -> Listed:
    name = f"batch-{number}.parquet"
    own = Segment(number << 32, number << 32, 1, 2_000, 0, name, name, {1: BOUNDS})
    return Listed(own, f"{number:032x}")


class Written:
    """A manifest with its parts, as a store would hold them, and how many bytes were written."""

    def __init__(self) -> None:
        self.manifest, self.parts, self.bytes, self.last_bytes = EMPTY, dict[str, bytes](), 0, 0
        self._named = 0

    def name(self) -> str:
        self._named += 1
        return f"{self._named:032x}"

    def read(self, ref: PartRef) -> Part:
        return part_from_bytes(self.parts[ref.path], ref, ref.path)

    def change(self, added: Iterable[int], removed: Iterable[int] = ()) -> None:
        gone = {segment(each).extent for each in removed}
        draft = changed(self.manifest, [segment(each) for each in added], gone, read=self.read, name=self.name)
        self.parts |= draft.sealed
        for path in draft.unused:
            del self.parts[path]
        self.manifest = draft.manifest
        self.last_bytes = sum(map(len, draft.sealed.values())) + len(to_bytes(self.manifest))
        self.bytes += self.last_bytes

    def listed(self) -> list[str]:
        return [each.extent for each in all_segments(self.manifest, self.read)]


def test_rewriting_costs_the_same_however_many_segments_there_are() -> None:
    written, largest = Written(), []
    for start in range(0, 3_000, 100):
        before = written.bytes
        for number in range(start, start + 100):
            written.change([number])
        largest.append((written.bytes - before) // 100)
    assert written.listed() == [segment(number).extent for number in range(3_000)]
    assert max(largest) < 40_000  # bytes a rewrite, over a hundred of them; the whole list is 1.2 MB
    assert max(largest[15:]) < 1.25 * max(largest[1:15])
    whole = len(to_bytes(replace(EMPTY, segments=tuple(segment(n).segment for n in range(3_000)))))
    assert len(to_bytes(written.manifest)) < whole / 25


def test_compaction_of_the_tail_touches_no_part() -> None:
    written = Written()
    written.change(range(200))
    before = dict(written.parts)
    written.change([500], range(190, 200))
    assert written.parts == before
    assert written.listed() == [segment(number).extent for number in (*range(190), 500)]


def test_segments_leave_sealed_parts_and_parts_of_parts() -> None:
    written = Written()
    for start in range(0, 5_000, 10):
        written.change(range(start, start + 10))
    assert {ref.level for ref in written.manifest.notes.parts} == {0, 1}  # type: ignore[union-attr]
    gone = {3, 40, 41, 2_500, 4_999, *range(4_000, 4_100)}
    written.change([6_000], gone)
    assert written.listed() == [segment(n).extent for n in (*(n for n in range(5_000) if n not in gone), 6_000)]
    used = {ref.path for ref in _all_refs(written)}
    assert used == set(written.parts)  # nothing is left behind


def _all_refs(written: Written) -> Iterable[PartRef]:
    waiting = list(written.manifest.notes.parts)  # type: ignore[union-attr]
    while waiting:
        ref = waiting.pop()
        yield ref
        waiting.extend(written.read(ref).parts)


def test_segment_that_is_not_there_cannot_leave() -> None:
    written = Written()
    written.change(range(100))
    with pytest.raises(NotFoundError):
        written.change([], [100])


@given(st.lists(st.tuples(st.integers(0, 90), st.lists(st.floats(0, 0.999), max_size=40)), max_size=12))
def test_any_changes_agree_with_a_plain_list(changes: list[tuple[int, list[float]]]) -> None:
    written, expected, next_number = Written(), list[int](), 0
    for count, chances in changes:
        gone = {expected[int(chance * len(expected))] for chance in chances if expected}
        added = range(next_number, next_number + count)
        next_number += count
        written.change(added, gone)
        expected = [each for each in expected if each not in gone] + list(added)
        assert sorted(written.listed()) == sorted(segment(each).extent for each in expected)
        assert len(written.manifest.segments) <= parts.LONGEST
        assert written.listed() == [segment(each).extent for each in expected]

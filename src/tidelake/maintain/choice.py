"""Choose which extents are worth compacting together.

Extents are looked at in order of time. A run is worth its cost if

- its extents are small and neighbours in time, no extent that is full standing between them, or they overlap each other
  deeper than a reader should have to look;
- none is larger than half of the run, so that a byte that is written again ends in a run at least twice as large;
- none was compacted as often as the table's rows have binary digits. That happens to nobody who appends in good order;
  it bounds the work whatever arrives, so that no byte is ever written more than O(log n) times.

Runs do not share extents, so they can be compacted side by side. It does not read extents, and does no IO.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelake.catalog.users import Small
from tidelake.model.snapshot import Extent

SMALL_BYTES = 8 << 20  # an extent below it is small…
# …if it is small in memory, too: what a byte weighs is told by the larger of the two, for events that are alike shrink
# to a hundredth, and a full extent of them must not look small. Rows that fill an extent weigh more than a small one.
UNPACKED = 12  # bytes in memory that weigh as much as a stored one
SMALL = Small(SMALL_BYTES, UNPACKED * SMALL_BYTES, 2_000_000)
RUN_BYTES = 32 << 20  # in one run of small extents; what is longer is several runs
KNOT_BYTES = 256 << 20  # in one run of extents that overlap: it is read once for each slice of it that fits in memory
FEWEST = 4  # extents in a run, unless somebody asks: each run is a commit
MAX_DEPTH = 8  # extents at one point of time, beyond which they are sorted apart
LAST_NS = 2**63


def runs_of(
    extents: Sequence[Extent], *, rows: int, fewest: int = FEWEST, window_ns: int | None = None
) -> list[tuple[Extent, ...]]:
    """Return the runs of a snapshot's extents that are worth compacting, the oldest first.

    With a window, as tables with a retention have it, extents of different windows are not joined: so whole extents
    become old at once.
    """
    able = fresh_enough(in_time_order(extents), rows)
    runs = small_runs(able, fewest, window_ns)
    taken = {extent.id for run in runs for extent in run}
    return runs + deep_runs([extent for extent in able if extent.id not in taken])


def fresh_enough(extents: Sequence[Extent], rows: int) -> list[Extent]:
    """Return the extents that were not compacted as often as the table's rows have binary digits."""
    limit = max(1, rows.bit_length())
    return [extent for extent in extents if extent.level < limit]


def small_runs(ordered: Sequence[Extent], fewest: int, window_ns: int | None = None) -> list[tuple[Extent, ...]]:
    """Return runs of small extents that follow each other."""
    stretches = _stretches(ordered, window_ns)
    return [tuple(run) for held in stretches for run in _worthwhile(held, fewest) if len(run) >= fewest]


def deep_runs(ordered: Sequence[Extent]) -> list[tuple[Extent, ...]]:
    """Return runs of extents, in time order, that overlap each other deeper than a reader should have to look."""
    parts = (part for knot in _knots(ordered) for part in _parts(knot))
    return [tuple(run) for part in parts for run in _worthwhile(part, 2) if depth_of(run) > 1]


def depth_of(extents: Sequence[Extent]) -> int:
    """Return how many extents there are at most at one point of time."""
    edges = sorted(edge for extent in extents for edge in ((_low(extent), 0, 1), (_high(extent), 1, -1)))
    depth = deepest = 0
    for _, _, change in edges:
        depth += change
        deepest = max(deepest, depth)
    return deepest


def weight_of(extent: Extent) -> int:
    """Return what an extent counts for, in stored bytes: what it has, or what its rows usually take if that is more."""
    return max(extent.byte_size, (extent.unpacked_bytes or 0) // UNPACKED)


def in_time_order(extents: Sequence[Extent]) -> list[Extent]:
    """Return extents by their first time; those without bounds come first, in the order of their commits."""
    return sorted(extents, key=lambda extent: (_low(extent), extent.added_seq, extent.id))


def _stretches(extents: Sequence[Extent], window_ns: int | None) -> Iterator[list[Extent]]:
    """Part extents in time order into stretches of small ones, none longer than a run."""
    held: list[Extent] = []
    size, window = 0, None
    for extent in extents:
        own = None if window_ns is None else _low(extent) // window_ns
        weight = weight_of(extent)
        if held and (not SMALL.is_small(extent) or size + weight > RUN_BYTES or own != window):
            yield held
            held, size = [], 0
        if SMALL.is_small(extent):
            held.append(extent)
            size, window = size + weight, own
    if held:
        yield held


def _worthwhile(run: Sequence[Extent], fewest: int) -> Iterator[Sequence[Extent]]:
    """Leave out extents that are more than half of what they would be joined with; what is on either side is a run."""
    waiting = [run]
    while waiting:
        run = waiting.pop()
        if len(run) < max(2, fewest):
            continue
        weights = [weight_of(extent) for extent in run]
        largest = max(range(len(run)), key=weights.__getitem__)
        if 2 * weights[largest] > sum(weights):
            waiting += [run[:largest], run[largest + 1 :]]
        else:
            yield run


def _knots(extents: Sequence[Extent]) -> Iterator[list[Extent]]:
    """Part extents in time order into sets that hang together, and give those that are too deep."""
    held: list[Extent] = []
    end = -LAST_NS
    for extent in extents:
        if held and _low(extent) > end:
            if depth_of(held) > MAX_DEPTH:
                yield held
            held, end = [], -LAST_NS
        held.append(extent)
        end = max(end, _high(extent))
    if held and depth_of(held) > MAX_DEPTH:
        yield held


def _parts(knot: Sequence[Extent]) -> Iterator[list[Extent]]:
    """Part what hangs together into pieces that can be sorted at a bounded cost."""
    held: list[Extent] = []
    size = 0
    for extent in knot:
        weight = weight_of(extent)
        if held and size + weight > KNOT_BYTES:
            yield held
            held, size = [], 0
        held.append(extent)
        size += weight
    yield held


def _low(extent: Extent) -> int:
    return -LAST_NS if extent.min_ts_ns is None else extent.min_ts_ns


def _high(extent: Extent) -> int:
    return LAST_NS if extent.max_ts_ns is None else extent.max_ts_ns

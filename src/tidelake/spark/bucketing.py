"""Replace the time buckets that a frame has rows in, and no others: Spark's dynamic overwrite, by bucket.

Spark's own sources do this by partition. Here a bucket is a stretch of the time column, as wide as the table's
``bucket`` or the option ``overwriteBucket`` says, else a day, counted from 1970 UTC. Each task notes in which
buckets its rows are, and the driver replaces what the table holds of all of them. It does not write or commit rows: see
``writing`` and ``overwriting``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from tidelake.coverage.buckets import Bucket, parse_bucket
from tidelake.errors import InvalidInputError
from tidelake.model.predicate import Or, Predicate, Range, TimeRange
from tidelake.model.snapshot import Snapshot
from tidelake.spark.options import BUCKETED, REPLACING, option

DAY = "1d"
MAX_RUNS = 1000  # every block at an edge is compared with each

Runs: TypeAlias = tuple[tuple[int, int], ...]  # of buckets that follow each other, first and last


@dataclass(frozen=True, slots=True)
class Cut:
    """Which column is cut into buckets, and how wide they are."""

    column: str
    bucket: Bucket

    def where(self, runs: Runs) -> Predicate:
        """Return what a row of these buckets matches."""
        found = [self._within(self.bucket.start(first), self.bucket.start(last + 1)) for first, last in runs]
        return found[0] if len(found) == 1 else Or(tuple(found))

    def _within(self, start: int, end: int) -> Predicate:
        if self.bucket.is_time:
            return TimeRange(self.column, start * 1000, end * 1000)
        return Range(self.column, low=start, high=end, include_high=False)


@dataclass(slots=True)
class Touched:
    """The buckets that the rows of a task are in."""

    cut: Cut
    runs: Runs = ()
    _numbers: list[Any] = field(default_factory=list)

    def take(self, batch: pa.RecordBatch) -> None:
        """Note the buckets of coerced rows, in which none is without a time."""
        values = batch.column(self.cut.column).cast(pa.int64()).to_numpy(zero_copy_only=False)
        self._numbers.append(np.unique(self.cut.bucket.numbers(values)))

    def finish(self) -> Runs:
        """Return them, as runs."""
        if not self._numbers:
            return ()
        numbers = np.unique(np.concatenate(self._numbers))
        ends = np.flatnonzero(np.diff(numbers) != 1)
        firsts, lasts = np.r_[numbers[:1], numbers[ends + 1]], np.r_[numbers[ends], numbers[-1:]]
        return tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))


def cut_of(options: Mapping[str, str], head: Snapshot) -> Cut | None:
    """Return how an overwrite by bucket cuts a table; None if the options ask for none."""
    mode, width = (option(options, name) for name in BUCKETED)
    if mode is not None and mode.lower() not in ("dynamic", "static"):
        raise InvalidInputError("partitionOverwriteMode is dynamic or static", got=mode, kind="bad_option")
    if mode is None or mode.lower() == "static":
        if width is not None:
            raise InvalidInputError("overwriteBucket is for partitionOverwriteMode dynamic", kind="bad_option")
        return None
    for name in REPLACING:
        if option(options, name) is not None:
            raise InvalidInputError(
                f"option {name} names the rows to replace, and so does partitionOverwriteMode dynamic: leave one out",
                kind="bad_option",
            )
    settings = head.settings
    column = settings.get("index") or settings.get("time")
    if column is None:
        raise InvalidInputError(
            "a dynamic overwrite replaces buckets of the time column, and this table has none: name the rows with "
            "replaceWhere, or set partitionOverwriteMode static to replace all",
            kind="bad_option",
        )
    bucket = parse_bucket(width if width is not None else settings.get("bucket") or DAY)
    if bucket.is_time != (head.schema[column].type.kind == "timestamp"):
        raise InvalidInputError("the bucket does not suit the column", column=column, bucket=bucket.text)
    return Cut(column, bucket)


def joined(each: Iterable[Runs]) -> Runs:
    """Return the runs of all tasks as one; InvalidInputError if they are too many to look for."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(run for runs in each for run in runs):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    if len(found) > MAX_RUNS:
        raise InvalidInputError(
            "the rows are in too many separate buckets for one overwrite: widen them with overwriteBucket",
            found=len(found), most=MAX_RUNS, kind="too_many_buckets",
        )  # fmt: skip
    return tuple(found)

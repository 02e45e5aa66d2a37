"""List series, labels and samples as they are, for those who look around before they ask.

Names of labels, and of metrics where they are few, come from statistics: no row is read. Series come from the columns
that say them, a batch at a time, and values and times are not read where a block lies wholly in the range. It does not
evaluate anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import promql_parser as syntax

from tidelake.errors import InvalidInputError
from tidelake.handle.lake_handle import OpenLake
from tidelake.handle.table_handle import TableHandle
from tidelake.model.settings import TableSettings
from tidelake.pruning.statistics import column_from_json
from tidelake.query.budget import Budget, Deadline
from tidelake.query.promql.labels import NAME, Words
from tidelake.query.promql.reading import conditions_of, parse
from tidelake.query.promql.selecting import MS_NS, Condition, Conditions, Interval, Source
from tidelake.query.promql.tables import columns_of, table_name
from tidelake.query.promql.vectors import Samples

EVERYTHING = (Condition(NAME, "!=", ""),)


class Listing:
    """What a table of samples holds within a range of time."""

    def __init__(
        self, lake: OpenLake, table: str | Mapping[str, Any], budget: Budget, user: str | None, interval: Interval
    ) -> None:
        handle = TableHandle.seen_by(lake.handle, table_name(table), user).pinned()
        columns = columns_of(table, handle.schema, TableSettings.of(handle.snapshot.settings).time)
        self._source, self._budget, self._interval = Source(handle, columns), budget, interval
        self._deadline = Deadline(budget.seconds)

    def series(self, selectors: Sequence[str], limit: int) -> list[dict[str, str]]:
        """Return the label sets of the series that one of the selectors matches, at most so many; of all, without."""
        alternatives = [each for text in selectors for each in _selected(text)] or [EVERYTHING]
        found: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
        for labels in self._source.series(alternatives, [self._interval], self._check):
            found.setdefault(tuple(sorted(labels.items())), labels)
            if len(found) >= limit:
                break
        return [found[key] for key in sorted(found)]

    def label_names(self) -> list[str] | None:
        """Return the names of labels as statistics have them, or None if they do not know all."""
        columns = self._source.columns
        found = {NAME} | {each for each in columns.labels if each not in columns.dynamic}
        for name in columns.dynamic:
            for known in self._known(name):
                if known.paths is None:
                    return None
                found.update(known.paths)
        nested = {path[:at] for path in found for at, letter in enumerate(path) if letter == "."}
        return sorted(found - nested)

    def metric_names(self) -> list[str] | None:
        """Return the names of metrics as statistics have them, or None if they do not know all."""
        columns = self._source.columns
        if columns.name is None:
            return sorted(columns.metrics)
        found: set[str] = set()
        for known in self._known(columns.name):
            if known.distinct is None:
                return None
            found.update(str(each) for each in known.distinct)
        return sorted(found - {""})

    def samples(self, alternatives: Sequence[Conditions]) -> Samples:
        """Return the samples of all series that meet the conditions."""
        plan = self._source.plan(alternatives, [self._interval])
        self._budget.check_read(plan.stages[-1].byte_size)
        with np.errstate(all="ignore"):
            return self._source.read(plan, alternatives, Words(), self._budget, self._check).samples

    def _known(self, column: str) -> Iterator[Any]:
        """Yield what is known of a column in each extent of the range, and in hot rows."""
        table, snapshot = self._source.table, self._source.table.snapshot
        low, high = self._interval
        extents = table.catalog.extents(
            table.scope, sequence=snapshot.sequence, start_ns=low * MS_NS, end_ns=(high + 1) * MS_NS, stats=(column,)
        )
        for extent in extents:
            yield column_from_json(extent.column_stats.get(column) or {})
        if (hot := table.hot_statistics()) is not None:
            yield hot.columns[column]

    def _check(self) -> None:
        if self._budget.is_stopped():
            raise self._budget.stopped()
        if self._deadline.left < 0:
            raise self._budget.out_of_time()


def _selected(text: str) -> tuple[Conditions, ...]:
    tree = parse(text)
    if not isinstance(tree, syntax.VectorSelector):
        raise InvalidInputError("a selector of series is expected", got=text[:80], kind="bad_data")
    return conditions_of(tree)

"""Hold the answer to a PromQL query: rows as Arrow, and the JSON that the API of Prometheus gives.

It does not evaluate: what it holds is read and computed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.logical.frames import pandas_frame
from tidelake.model.schema import JSON_FIELD
from tidelake.pruning.plan import ScanPlan
from tidelake.query.promql.loops import join_texts
from tidelake.query.promql.printing import time_texts, value_texts
from tidelake.query.promql.vectors import Floats, Grid, Ints, Scalar, Text, Value, Vector, Windows
from tidelake.runtime.readiness import has_loops

if TYPE_CHECKING:
    import pandas
    import polars

Kind: TypeAlias = Literal["matrix", "vector", "scalar", "string"]

_SCHEMA = pa.schema(
    [
        pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("labels", pa.string(), nullable=False, metadata=JSON_FIELD),
        pa.field("value", pa.float64(), nullable=False),
    ]
)
_TEXT_SCHEMA = pa.schema([_SCHEMA.field("ts"), _SCHEMA.field("labels"), pa.field("value", pa.string())])


@dataclass(frozen=True, slots=True, repr=False)
class PromAnswer:
    """The answer to a PromQL query: points of series, each series with its labels."""

    kind: Kind
    series: tuple[dict[str, str], ...]
    first: Ints  # the points of series n are in [first[n], first[n + 1])
    times_ms: Ints
    values: Floats
    text: str | None  # of a query that is a text
    plans: tuple[ScanPlan, ...]
    warnings: tuple[str, ...] = ()

    def to_arrow(self) -> pa.Table:
        """Return a row for each point: ``ts``, ``labels`` as JSON text, ``value``."""
        owner = np.repeat(np.arange(len(self.series)), np.diff(self.first))
        labels = pa.array(
            [orjson.dumps(each, option=orjson.OPT_SORT_KEYS).decode() for each in self.series], pa.string()
        )
        times = pa.array(self.times_ms * 1000).cast(pa.timestamp("us", tz="UTC"))
        texts = labels.take(pa.array(owner))
        if self.text is not None:
            return pa.table([times, texts, pa.array([self.text])], schema=_TEXT_SCHEMA)
        return pa.table([times, texts, pa.array(self.values, pa.float64())], schema=_SCHEMA)

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows of ``to_arrow`` as a stream."""
        return self.to_arrow().to_reader()

    def to_polars(self) -> polars.DataFrame:
        """Return the rows of ``to_arrow`` as a Polars frame; needs polars."""
        import polars

        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows of ``to_arrow`` as a pandas frame; needs pandas."""
        return pandas_frame(self.to_arrow())

    def to_json(self) -> bytes:
        """Return the ``data`` of an answer of Prometheus' API: ``resultType`` and ``result``."""
        kind = self.kind.encode()
        points, ends = self._points()
        if self.kind in ("scalar", "string"):
            return b'{"resultType":"%s","result":%s}' % (kind, points[:-1])
        begin, end = (b',"values":[', b"]},") if self.kind == "matrix" else (b',"value":', b"},")
        places = ends[self.first].tolist()
        parts: list[bytes | memoryview] = [b'{"resultType":"%s","result":[' % kind]
        for labels, low, high in zip(self.series, places, places[1:], strict=False):
            parts += (b'{"metric":', orjson.dumps(labels, option=orjson.OPT_SORT_KEYS), begin)
            parts += (points[low : max(high - 1, low)], end)
        parts.append(b"]}")
        if self.series:
            parts[-2] = end[:-1]
        return b"".join(parts)

    def limited(self, series: int) -> PromAnswer:
        """Return at most so many of the series, and a warning if that is not all of them."""
        if not 0 < series < len(self.series):
            return self
        end, warnings = int(self.first[series]), (*self.warnings, "results truncated due to limit")
        kept = self.series[:series], self.first[: series + 1], self.times_ms[:end], self.values[:end]
        return replace(self, series=kept[0], first=kept[1], times_ms=kept[2], values=kept[3], warnings=warnings)

    def to_prometheus(self) -> dict[str, Any]:
        """Return the same as Python objects."""
        found: dict[str, Any] = orjson.loads(self.to_json())
        return found

    def explain(self) -> str:
        """Return what was read for each selector, from all extents to the blocks that were fetched."""
        return "\n\n".join(plan.explain() for plan in self.plans) or "no table is read"

    def __len__(self) -> int:
        """Return how many points there are."""
        return len(self.times_ms)

    def __repr__(self) -> str:
        return f"PromAnswer({self.kind}, {len(self.series):,} series, {len(self):,} points)"

    def _points(self) -> tuple[memoryview, Ints]:
        """Return all points as ``[seconds,"value"],``, one after the other, and where each begins.

        Distinct times and values are written once: all series have the same steps, and many values are alike.
        """
        if self.text is not None:
            only = f"[{time_texts(self.times_ms)[0]},{orjson.dumps(self.text).decode()}],".encode()
            return memoryview(only), np.array([0, len(only)])
        times = pa.array(self.times_ms).dictionary_encode()
        heads = _joined("[", time_texts(times.dictionary.to_numpy()).cast(pa.large_string()), ',"')
        values = pa.array(self.values.view(np.int64)).dictionary_encode()  # by their bits: 0.0 is not -0.0
        tails = _joined(value_texts(values.dictionary.to_numpy().view(np.float64)).cast(pa.large_string()), '"],')
        return _pairs(heads, times.indices, tails, values.indices)


def _pairs(lefts: pa.Array, left: pa.Array, rights: pa.Array, right: pa.Array) -> tuple[memoryview, Ints]:
    """Write pairs of texts one after the other, each by its place in a column; return them and where each begins."""
    if not has_loops():
        texts = _joined(lefts.take(left), rights.take(right))
        _, ends, data = texts.buffers()
        return memoryview(data or b""), np.frombuffer(ends, np.int64)[: len(texts) + 1]
    left_ends, left_data = _read_only(lefts)
    right_ends, right_data = _read_only(rights)
    places = left.to_numpy(), right.to_numpy()
    sizes = (np.bincount(places[0], minlength=len(lefts)) @ np.diff(left_ends)) + (
        np.bincount(places[1], minlength=len(rights)) @ np.diff(right_ends)
    )
    out, found = np.empty(int(sizes), np.uint8), np.zeros(len(left) + 1, np.int64)
    join_texts(places[0], left_ends, left_data, places[1], right_ends, right_data, out, found)
    return memoryview(out.data), found


def _read_only(texts: pa.Array) -> tuple[Ints, Any]:
    """Return where texts end, and their bytes, as arrays that are not written to: one type for the compiled loop."""
    _, ends, data = texts.buffers()
    found = np.frombuffer(memoryview(ends).toreadonly(), np.int64)[: len(texts) + 1]
    return found, np.frombuffer(b"" if data is None else memoryview(data).toreadonly(), np.uint8)


def _large(text: str) -> pa.Scalar:
    return pa.scalar(text, pa.large_string())


def _joined(*parts: str | pa.Array) -> pa.Array:
    """Join texts and columns of texts, whose offsets are of 64 bits: an answer may have more than 2 GB."""
    columns = [_large(part) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*columns, _large(""))


def answer_of(value: Value, grid: Grid, *, is_instant: bool, plans: tuple[ScanPlan, ...]) -> PromAnswer:
    """Return a value as an answer: of an instant query what it is, of a range query always a matrix."""
    none = np.empty(0, np.int64)
    match value:
        case Text(text):
            return PromAnswer("string", ({},), np.array([0, 1]), grid.times_ms[:1], np.empty(0), text, plans)
        case Scalar(values):
            ends = np.array([0, grid.steps])
            return PromAnswer("scalar" if is_instant else "matrix", ({},), ends, grid.times_ms, values, None, plans)
        case Windows():
            samples, counts = value.samples, value.counts[:, 0] if value.counts.size else none
            held = np.flatnonzero(counts > 0)
            first = np.concatenate([[0], np.cumsum(counts[held])])
            places = np.arange(first[-1]) + np.repeat(value.low[held, 0] - first[:-1], counts[held])
            series = tuple(samples.labels.take(held).sets())
            times, values = samples.times_ms[places], samples.values[places]
            return PromAnswer("matrix", series, first, times, values, None, plans)
        case Vector():
            found = value.compact()
            if not found.is_ordered:
                found = found.take(found.labels.sort_order())
            kind: Kind = "vector" if is_instant else "matrix"
            series = tuple(found.labels.sets())
            first = np.concatenate([[0], np.cumsum(np.count_nonzero(found.present, axis=1))])
            times = np.broadcast_to(grid.times_ms, found.present.shape)
            if found.present.all():
                return PromAnswer(kind, series, first, times.reshape(-1), found.values.reshape(-1), None, plans)
            return PromAnswer(kind, series, first, times[found.present], found.values[found.present], None, plans)

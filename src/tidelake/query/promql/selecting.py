"""Read the samples of a selector: one scan with what can be asked of the table, and series from distinct labels.

1. the time ranges, the name and the label conditions become the predicate that a scan is planned by;
2. the rows of each batch are numbered by the distinct bytes of their labels, each of which is decoded once;
3. all conditions are asked of the distinct label sets, which is what decides; rows of others are not kept;
4. samples are laid out by series and time: see ``vectors``.

It does not evaluate anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_, or_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.dynamic import decode
from tidelake.errors import QueryError
from tidelake.handle.table_handle import TableHandle
from tidelake.model.predicate import (
    DynamicPathEquals,
    DynamicPathTest,
    Equals,
    InSet,
    Predicate,
    StringMatches,
    TimeRange,
    Value,
    columns_of,
    conjuncts_of,
)
from tidelake.pruning.plan import ScanPlan
from tidelake.query.budget import Budget
from tidelake.query.promql.labels import NAME, Labels, Words, distinct
from tidelake.query.promql.printing import value_text
from tidelake.query.promql.tables import Columns
from tidelake.query.promql.vectors import Bools, Ints, Kinds, Part, Piece, Read, laid_out
from tidelake.scan.extents import scan_shown

MS_NS = 1_000_000
ROW_BYTES = 64  # of a sample while samples are sorted
NUMBERED = 1 << 24  # combinations of label columns that are counted in a table
MOST_CONDITIONS = 2_000  # on labels, of selectors that are asked at once; planning compares them with each other
TOGETHER_ROWS = 1 << 19  # whose labels are looked at together
_PLAIN_WORDS = re.compile(r"[\w:./ -]*(?:\|[\w:./ -]*)*")  # alternatives without any sign of a pattern


@dataclass(frozen=True, slots=True)
class Condition:
    """What is asked of one label: ``=``, ``!=``, ``=~`` or ``!~`` a text."""

    label: str
    sign: str
    text: str

    def holds(self, texts: Sequence[str]) -> Bools:
        """Whether each of some values is wanted; a label that is not there is empty."""
        values = pa.array(texts, pa.string())
        if self.sign in ("=", "!="):
            found = pc.equal(values, self.text)
        else:
            found = pc.match_substring_regex(values, anchored(self.text))
        same = np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)
        return same if self.sign in ("=", "=~") else ~same

    @property
    def words(self) -> tuple[str, ...] | None:
        """The texts that are wanted, if they are a few and none of them is empty."""
        if self.sign == "=":
            return (self.text,) if self.text else None
        if self.sign != "=~" or not _PLAIN_WORDS.fullmatch(self.text) or "." in self.text:
            return None
        found = tuple(dict.fromkeys(self.text.split("|")))
        return found if all(found) else None


Conditions = tuple[Condition, ...]
Interval = tuple[int, int]  # milliseconds, both included
Key = tuple[Any, ...]  # what a row has in the columns that say its labels


@dataclass(slots=True)
class _Gathered:
    """The samples of one value column so far: label sets that are wanted, and by rows the number of the set."""

    column: str
    metric: str | None  # the name of the metric, if it is not in the rows
    sets: list[dict[str, str]]
    numbers: dict[Key, int] = field(default_factory=dict)
    pieces: list[Piece] = field(default_factory=list)
    rows: int = 0

    def add(self, series: Ints, kinds: Kinds, times: Ints, values: pa.Array) -> None:
        """Keep the rows of wanted label sets that have a value: ``series`` has the number of the set of each kind."""
        held = None
        if values.null_count:
            held = np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)
        if (series < 0).any():
            wanted = (series >= 0)[kinds]
            held = wanted if held is None else held & wanted
        floats = _floats(values)
        if held is not None and not held.all():
            kinds, times, floats = kinds[held], times[held], floats[held]
        if len(times):
            self.pieces.append(Piece(series, kinds, times, floats))
            self.rows += len(times)

    def part(self, words: Words) -> Part:
        """Return all of it, with label sets that are written in several ways united."""
        labels = Labels.of(words, self.sets)
        first, kind = distinct(labels.codes)
        if len(first) == len(kind):
            return Part(labels, self.pieces)
        return Part(labels.take(first), [each.renumbered(kind) for each in self.pieces])


@dataclass(frozen=True, slots=True)
class Source:
    """A table of samples, pinned to one snapshot."""

    table: TableHandle
    columns: Columns

    def plan(self, alternatives: Sequence[Conditions], intervals: Iterable[Interval]) -> ScanPlan:
        """Plan the scan of a selector, whose conditions must all hold in one of the alternatives."""
        read = [self.columns.time, *self._sources(alternatives), *self._values(alternatives)]
        return self.table.plan(read, self._where(alternatives, intervals))

    def read(
        self,
        plan: ScanPlan,
        alternatives: Sequence[Conditions],
        words: Words,
        budget: Budget,
        check: Callable[[], None],
    ) -> Read:
        """Read the samples of a selector, a batch at a time; rows that are not wanted are not kept."""
        sources = self._sources(alternatives)
        fixed = _only_name(alternatives)
        gathered = [
            _Gathered(name, name if self.columns.name is None else fixed, []) for name in self._values(alternatives)
        ]
        for batches in _together(scan_shown(self._by_rows(plan, sources), self.table.footers), check):
            kinds, keys = _distinct_rows(batches, sources)
            series = [self._series(each, sources, keys, alternatives) for each in gathered]
            for batch, own in zip(batches, kinds, strict=True):
                times = _milliseconds(batch.column(self.columns.time))
                for each, numbers in zip(gathered, series, strict=True):
                    each.add(numbers, own, times, batch.column(each.column))
            if sum(each.rows for each in gathered) * ROW_BYTES > budget.memory_bytes:
                raise budget.out_of_memory()
        check()
        return laid_out(words, [each.part(words) for each in gathered])

    def series(
        self, alternatives: Sequence[Conditions], intervals: Iterable[Interval], check: Callable[[], None]
    ) -> Iterator[dict[str, str]]:
        """Yield the label sets that are wanted; samples are not read, but where columns are metrics."""
        sources = self._sources(alternatives)
        values = self._values(alternatives) if self.columns.name is None else ()
        plan = self.table.plan([*sources, *values], self._where(alternatives, intervals))
        fixed = _only_name(alternatives)
        gathered = [
            _Gathered(name, name if self.columns.name is None else fixed, []) for name in values or self.columns.values
        ]
        for batches in _together(scan_shown(self._by_rows(plan, sources), self.table.footers), check):
            for each in gathered:
                valued = [batch.filter(batch.column(each.column).is_valid()) if values else batch for batch in batches]
                _, keys = _distinct_rows(valued, sources)
                known = len(each.sets)
                self._series(each, sources, keys, alternatives)
                yield from each.sets[known:]

    def _series(
        self, gathered: _Gathered, sources: Sequence[str], keys: Sequence[Key], alternatives: Sequence[Conditions]
    ) -> Ints:
        """Return for what distinct rows have in the columns of labels the number of a wanted label set, or -1."""
        new = [key for key in dict.fromkeys(keys) if key not in gathered.numbers]
        sets = [self._set(gathered.metric, dict(zip(sources, key, strict=True))) for key in new]
        for key, labels, is_wanted in zip(new, sets, _wanted(sets, alternatives), strict=True):
            gathered.numbers[key] = len(gathered.sets) if is_wanted else -1
            if is_wanted:
                gathered.sets.append(labels)
        return np.array([gathered.numbers[key] for key in keys], np.int64)

    def _by_rows(self, plan: ScanPlan, sources: Sequence[str]) -> ScanPlan:
        """Return the scan as rows are read: labels as distinct values, of which conditions are asked later."""
        schema = plan.question.schema
        encoded = frozenset(name for name in sources if schema[name].type.logical is None)
        where = self._of_rows(plan.question.where)
        return replace(plan, question=replace(plan.question, where=where, encoded=encoded))

    def _of_rows(self, where: Predicate | None) -> Predicate | None:
        """Return the part of a condition that rows are asked: all but what is about labels."""
        labels = frozenset(self.columns.labels)
        kept = [each for each in conjuncts_of(where) if not columns_of(each) & labels]
        return reduce(and_, kept) if kept else None

    def _sources(self, alternatives: Sequence[Conditions]) -> list[str]:
        """Return the columns that say which series a row is of; a name that is known is not read."""
        name = self.columns.name
        return [*self.columns.labels, *([] if name is None or _only_name(alternatives) is not None else [name])]

    def _set(self, metric: str | None, row: Mapping[str, Any]) -> dict[str, str]:
        """Return the labels that one row's columns say."""
        found: dict[str, str] = {} if metric is None else {NAME: metric}
        for column, value in row.items():
            if value is None:
                continue
            if column == self.columns.name:
                found[NAME] = str(value)
            elif column in self.columns.dynamic:
                _flatten(decode(value) if isinstance(value, bytes) else value, "", found)
            else:
                found[column] = _text(value)
        return {name: text for name, text in found.items() if text}

    def _values(self, alternatives: Sequence[Conditions]) -> tuple[str, ...]:
        """Return the columns whose values are asked for: where columns are metrics, those with a wanted name."""
        if self.columns.name is not None:
            return self.columns.values
        names = self.columns.metrics
        kept = np.zeros(len(names), np.bool_)
        for conditions in alternatives:
            held = np.ones(len(names), np.bool_)
            for each in conditions:
                held &= each.holds(names) if each.label == NAME else True
            kept |= held
        return tuple(name for name, keep in zip(names, kept, strict=True) if keep)

    def _where(self, alternatives: Sequence[Conditions], intervals: Iterable[Interval]) -> Predicate:
        times: list[Predicate] = [
            TimeRange(self.columns.time, low * MS_NS, (high + 1) * MS_NS) for low, high in _merged(intervals)
        ]
        if (conditions := sum(map(len, alternatives))) > MOST_CONDITIONS:
            raise QueryError(
                "the query has too many conditions", kind="too_many", conditions=conditions, limit=MOST_CONDITIONS
            )
        asked = [[part for each in several if (part := self._pushed(each)) is not None] for several in alternatives]
        parts: list[Predicate] = [reduce(or_, times)]
        if all(asked):
            parts.append(reduce(or_, [reduce(and_, several) for several in asked]))
        return reduce(and_, parts)

    def _pushed(self, condition: Condition) -> Predicate | None:
        """Return what a scan can be asked for a condition; it may let through more than is wanted, never less."""
        column = self.columns.name if condition.label == NAME else condition.label
        wants_some = condition.sign in ("=", "=~") and not condition.holds([""])[0]
        if not wants_some or column is None:
            return None
        if condition.label == NAME:
            if (words := condition.words) is not None:
                return Equals(column, words[0]) if len(words) == 1 else InSet(column, words)
            return StringMatches(column, anchored(condition.text))
        if column in self.columns.labels and column not in self.columns.dynamic:
            if self.table.schema[column].type.kind != "string" or (words := condition.words) is None:
                return None
            return Equals(column, words[0]) if len(words) == 1 else InSet(column, words)
        if len(self.columns.labels) != 1 or len(self.columns.dynamic) != 1 or not column.replace("_", "").isalnum():
            return None
        (held,) = self.columns.dynamic
        if (words := condition.words) is not None:
            meant = tuple(value for word in words for value in _meant(word))
            if len(meant) == 1:
                return DynamicPathEquals(held, column, meant[0])
            return DynamicPathTest(held, column, InSet(held, meant))
        return None


def _together(batches: Iterable[pa.RecordBatch], check: Callable[[], None]) -> Iterator[list[pa.RecordBatch]]:
    """Yield some batches at a time, so that the labels of a series are looked at once for many of its samples."""
    held: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        check()
        held.append(batch)
        rows += batch.num_rows
        if rows >= TOGETHER_ROWS:
            yield held
            held, rows = [], 0
    if held:
        yield held


def _distinct_rows(batches: Sequence[pa.RecordBatch], names: Sequence[str]) -> tuple[list[Kinds], list[Key]]:
    """Number the rows of some batches by what they have in some columns; return the numbers, and what each stands for.

    Columns are dictionaries, or what can be made dictionaries of.
    """
    columns = [_united([batch.column(name) for batch in batches]) for name in names]
    rows = sum(batch.num_rows for batch in batches)
    if len(columns) == 1 and not columns[0][0].null_count:
        kinds, keys = _used(*columns[0])
    else:
        kinds, keys = _combined(columns, rows)
    ends = np.cumsum([batch.num_rows for batch in batches])[:-1]
    return np.split(kinds, ends), keys


def _united(columns: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
    """Return the numbers of several dictionaries as one, and their distinct values."""
    encoded = [each if pa.types.is_dictionary(each.type) else each.dictionary_encode() for each in columns]
    if len(encoded) == 1:
        return encoded[0].indices, encoded[0].dictionary
    chunks = pa.chunked_array(encoded).unify_dictionaries().chunks
    return pa.concat_arrays([each.indices for each in chunks]), chunks[0].dictionary


def _used(indices: pa.Array, dictionary: pa.Array) -> tuple[Kinds, list[Key]]:
    """Return the numbers of rows, and what those that occur stand for; what does not occur is left out."""
    codes = indices.to_numpy()
    is_used = np.bincount(codes, minlength=len(dictionary)) > 0
    if is_used.all():
        return codes, [(each,) for each in dictionary.to_pylist()]
    used = pa.array(np.flatnonzero(is_used))
    renumbered = np.cumsum(is_used, dtype=np.int32) - np.int32(1)
    return renumbered[codes], [(each,) for each in dictionary.take(used).to_pylist()]


def _combined(columns: Sequence[tuple[pa.Array, pa.Array]], rows: int) -> tuple[Kinds, list[Key]]:
    """Return numbers of what rows have in several columns, nulls among it, and what they stand for."""
    number, kinds = np.zeros(rows, np.int64), 1
    for indices, dictionary in columns:
        size = len(dictionary) + 1
        number = number * size + pc.fill_null(indices, len(dictionary)).to_numpy()
        kinds *= size
        if kinds <= NUMBERED:
            seen = np.zeros(kinds, np.bool_)
            seen[number] = True
            renumbered = np.cumsum(seen) - 1
            number, kinds = renumbered[number], int(seen.sum())
        else:
            found, inverse = np.unique(number, return_inverse=True)
            number, kinds = inverse.reshape(-1).astype(np.int64), len(found)
    first = np.zeros(kinds if rows else 0, np.int64)
    first[number[::-1]] = np.arange(rows - 1, -1, -1)
    places = pa.array(first)
    heads = [dictionary.take(indices.take(places)).to_pylist() for indices, dictionary in columns]
    return number.astype(np.int32), list(zip(*heads, strict=True)) if heads else [()] * len(first)


def _only_name(alternatives: Sequence[Conditions]) -> str | None:
    """Return the one name that all alternatives ask for."""
    names = {each.text for several in alternatives for each in several if each.label == NAME and each.sign == "="}
    asked = all(any(each.label == NAME and each.sign == "=" for each in several) for several in alternatives)
    return names.pop() if asked and len(names) == 1 and "" not in names else None


def anchored(pattern: str) -> str:
    """Return a pattern that must match a whole text, as Prometheus has it."""
    return f"^(?s:{pattern})$"


def _meant(word: str) -> tuple[Value, ...]:
    """Return the values in a table that are the same label: the text, and a truth or a number that is written so."""
    if word in ("true", "false"):
        return word, word == "true"
    try:
        number = float(word)
    except ValueError:
        return (word,)
    return (word, int(number)) if number.is_integer() else (word, number)


def _merged(intervals: Iterable[Interval]) -> list[Interval]:
    found: list[Interval] = []
    for low, high in sorted(intervals):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return found


def _wanted(sets: Sequence[dict[str, str]], alternatives: Sequence[Conditions]) -> Bools:
    """Whether each label set meets all conditions of an alternative."""
    wanted = np.zeros(len(sets), np.bool_)
    for conditions in alternatives:
        held = np.ones(len(sets), np.bool_)
        for each in conditions:
            held &= each.holds([labels.get(each.label, "") for labels in sets])
        wanted |= held
    return wanted


def _milliseconds(column: pa.Array) -> Ints:
    kind = column.type
    values = np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)
    if pa.types.is_timestamp(kind):
        return np.asarray(values // {"s": 1, "ms": 1, "us": 1_000, "ns": MS_NS}[kind.unit], np.int64)
    return values


def _floats(values: pa.Array) -> Any:
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    values = values.cast(pa.float64())
    return (pc.fill_null(values, 0.0) if values.null_count else values).to_numpy(zero_copy_only=False)


def _flatten(value: Any, prefix: str, found: dict[str, str]) -> None:
    """Write the leaves of a dynamic value as labels, keys joined by dots."""
    if isinstance(value, dict):
        for key, inner in value.items():
            path = f"{prefix}.{key}" if prefix else str(key)
            if isinstance(inner, str) and path:
                found[path] = inner
            else:
                _flatten(inner, path, found)
    elif value is not None and prefix:
        found[prefix] = _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value_text(value) if isinstance(value, float) else str(value)

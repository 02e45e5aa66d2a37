"""Read snapshots out of the SQL catalog.

Schemas and settings are immutable once numbered, so each is read once and kept. A state that needs several statements
is read in one transaction. It does not change anything.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import orjson
from sqlalchemy import BigInteger, Select, Text, and_, bindparam, or_, select, union_all

from tidelake.catalog import tables as t
from tidelake.catalog.driver import Database, Row, Transaction, among
from tidelake.catalog.listing import (
    EXTENT_COLUMNS,
    Sort,
    in_order,
    intervals_of,
    row_to_extent,
    select_extents,
    select_some_stats,
    select_stats,
    stats_parameters,
    values_of,
)
from tidelake.catalog.protocol import Changes
from tidelake.catalog.tables import LEAST_NS, MOST_NS, ordinal_of
from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.predicate import Predicate
from tidelake.schema import Schema
from tidelake.snapshot import (
    Counts,
    Coverage,
    Extent,
    HotBatch,
    Manifest,
    Scope,
    Snapshot,
    empty_snapshot,
)

KEPT = 4096  # schemas, and settings, kept in memory
SCOPES_PAGE = 1000

_TABLE = bindparam("table_id", type_=Text)
_USER = bindparam("user_id", type_=Text)
_SCOPE = bindparam("scope_id", type_=BigInteger)
_SEQUENCE = bindparam("sequence", type_=BigInteger)
_AFTER = bindparam("after", type_=BigInteger)
_UPTO = bindparam("upto", type_=BigInteger)

_SNAPSHOT_COLUMNS = (
    t.snapshots.c.sequence,
    t.snapshots.c.id,
    t.snapshots.c.parent_id,
    t.snapshots.c.committed_us,
    t.snapshots.c.operation,
    t.snapshots.c.schema_version,
    t.snapshots.c.counts,
    t.snapshots.c.coverage_key,
    t.snapshots.c.coverage_as_of,
)
_HOT_COLUMNS = (
    t.hot_batches.c.id,
    t.hot_batches.c.rows,
    t.hot_batches.c.payload,
    t.hot_batches.c.min_ts_ns,
    t.hot_batches.c.max_ts_ns,
    t.hot_batches.c.schema_version,
    t.hot_batches.c.added_seq,
    t.hot_batches.c.removed_seq,
)

_table_and_scope = t.tables.outerjoin(t.scopes, and_(t.scopes.c.table_id == t.tables.c.id, t.scopes.c.user_id == _USER))
_place = (  # of a scope: its table's state, its number and its head
    select(
        t.tables.c.dropped_us,
        t.tables.c.schema_version,
        t.tables.c.settings_seq,
        t.scopes.c.id,
        t.scopes.c.sequence,
    )
    .select_from(_table_and_scope)
    .where(t.tables.c.id == _TABLE)
)
_head = (
    select(*_place.selected_columns[:4], *_SNAPSHOT_COLUMNS)
    .select_from(
        _table_and_scope.outerjoin(
            t.snapshots,
            and_(t.snapshots.c.scope_id == t.scopes.c.id, t.snapshots.c.sequence == t.scopes.c.sequence),
        )
    )
    .where(t.tables.c.id == _TABLE)
)
_hold = select(t.scopes.c.id).where(t.scopes.c.table_id == _TABLE, t.scopes.c.user_id == _USER).with_for_update()
_snapshots = select(*_SNAPSHOT_COLUMNS).where(t.snapshots.c.scope_id == _SCOPE)
_snapshot_by_sequence = _snapshots.where(t.snapshots.c.sequence == _SEQUENCE)
_snapshot_by_id = _snapshots.where(t.snapshots.c.id == bindparam("id", type_=Text))
_snapshot_at = (
    _snapshots.where(t.snapshots.c.committed_us <= bindparam("at_us", type_=BigInteger))
    .order_by(t.snapshots.c.committed_us.desc())
    .limit(1)
)
_history = (
    _snapshots.where(t.snapshots.c.sequence < _UPTO)
    .order_by(t.snapshots.c.sequence.desc())
    .limit(bindparam("limit", type_=BigInteger))
)
_schema = select(t.schemas.c.body).where(t.schemas.c.table_id == _TABLE, t.schemas.c.version == _SEQUENCE)
_settings = select(t.settings.c.body).where(t.settings.c.table_id == _TABLE, t.settings.c.sequence == _SEQUENCE)
_settings_sequences = select(t.settings.c.sequence).where(t.settings.c.table_id == _TABLE).order_by("sequence")
_scopes = (
    select(t.scopes.c.id, t.scopes.c.user_id)
    .where(t.scopes.c.table_id == _TABLE, t.scopes.c.user_id > _USER)
    .order_by(t.scopes.c.user_id)
    .limit(SCOPES_PAGE)
)
_shared_scope = select(t.scopes.c.id).where(t.scopes.c.table_id == _TABLE, t.scopes.c.user_id == "")

_hot = t.hot_batches.c
_hot_at_head = (
    select(*_HOT_COLUMNS)
    .where(_hot.scope_id == _SCOPE, _hot.removed_seq.is_(None), _hot.added_seq <= _SEQUENCE)
    .order_by(_hot.ordinal)
)
_hot_before = (
    select(*_HOT_COLUMNS)
    .where(_hot.scope_id == _SCOPE, _hot.added_seq <= _SEQUENCE)
    .where(or_(_hot.removed_seq.is_(None), _hot.removed_seq > _SEQUENCE))
    .order_by(_hot.ordinal)
)
_offsets = select(t.offsets.c.stream, t.offsets.c.batch).where(t.offsets.c.scope_id == _SCOPE)
_live = union_all(
    *(
        select(of.c.id).where(of.c.scope_id == _SCOPE, among(of.c.id, "ids"), of.c.removed_seq.is_(None))
        for of in (t.extents, t.hot_batches)
    )
)
_added_extents, _added_hot = (
    select(*columns)
    .where(of.c.scope_id == _SCOPE, of.c.ordinal >= bindparam("first", type_=BigInteger))
    .where(of.c.ordinal < bindparam("last", type_=BigInteger))
    .where(or_(of.c.removed_seq.is_(None), of.c.removed_seq > _UPTO))
    .order_by(of.c.ordinal)
    for of, columns in ((t.extents, EXTENT_COLUMNS), (t.hot_batches, _HOT_COLUMNS))
)
_removed_extents, _removed_hot = (
    select(of.c.id)
    .where(of.c.scope_id == _SCOPE, of.c.removed_seq > _AFTER, of.c.removed_seq <= _UPTO, of.c.added_seq <= _AFTER)
    .order_by(of.c.ordinal)
    for of in (t.extents, t.hot_batches)
)


class SqlReader:
    """The reading half of the SQL catalog."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Immutable once numbered, so a copy is never stale.
        self._schemas: dict[tuple[str, int], Schema] = {}
        self._settings: dict[tuple[str, int], Mapping[str, Any]] = {}

    def schema(self, table_id: str, version: int) -> Schema:
        """Give one version of a table's schema."""
        found = self._schemas.get((table_id, version))
        if found is None:
            rows = self._database.query(_schema, {"table_id": table_id, "sequence": version})
            if not rows:
                raise NotFoundError("no such schema version", table=table_id, version=version)
            found = _keep(self._schemas, (table_id, version), Schema.from_json(orjson.loads(rows[0][0])))
        return found

    def scopes(self, table_id: str) -> Iterator[Scope]:
        """Give every scope of a table that has a snapshot."""
        if self._database.query(_shared_scope, {"table_id": table_id}):
            yield Scope(table_id)
        user = ""
        while page := self._database.query(_scopes, {"table_id": table_id, "user_id": user}):
            yield from (Scope(table_id, row[1]) for row in page)
            user = page[-1][1]

    def head(self, scope: Scope) -> Snapshot:
        """Give the newest snapshot; for a user without commits, the empty one at sequence 0."""
        return self._head_of(scope, self._database.query(_head, _named(scope)))

    def snapshot(
        self, scope: Scope, *, sequence: int | None = None, snapshot_id: str | None = None, at_us: int | None = None
    ) -> Snapshot:
        """Give a retained snapshot by exactly one of sequence, id, or the newest at or before a time."""
        if [sequence, snapshot_id, at_us].count(None) != 2:
            raise InvalidInputError("name a snapshot by exactly one of sequence, id and time")
        with self._database.reading() as transaction:
            place = self._place(transaction, scope)
            found: list[Row] = []
            if place.scope_id is not None:
                named = {"scope_id": place.scope_id, "sequence": sequence, "id": snapshot_id, "at_us": at_us}
                if sequence is not None:
                    found = transaction.rows(_snapshot_by_sequence, named)
                elif snapshot_id is not None:
                    found = transaction.rows(_snapshot_by_id, named)
                else:
                    found = transaction.rows(_snapshot_at, named)
            if not found:
                wanted = next(name for name in (sequence, snapshot_id, at_us) if name is not None)
                raise NotFoundError("no such snapshot, or it has expired", scope=scope, wanted=wanted)
            return self._snapshots_of(transaction, place, found)[0]

    def history(self, scope: Scope, *, limit: int = 100, before: int | None = None) -> list[Snapshot]:
        """List retained snapshots, newest first, those below sequence ``before`` if given."""
        with self._database.reading() as transaction:
            place = self._place(transaction, scope)
            if place.scope_id is None:
                return []
            upto = MOST_NS if before is None else before
            rows = transaction.rows(_history, {"scope_id": place.scope_id, "upto": upto, "limit": limit})
            return self._snapshots_of(transaction, place, rows)

    def extents(
        self,
        scope: Scope,
        *,
        sequence: int | None = None,
        start_ns: int | None = None,
        end_ns: int | None = None,
        where: Predicate | None = None,
        stats: Collection[str] | None = None,
    ) -> list[Extent]:
        """List the extents of a snapshot that may hold rows in ``[start_ns, end_ns)`` that match ``where``."""
        with self._database.reading() as transaction:
            place = self._place(transaction, scope, sequence)
            if place.scope_id is None:
                return []
            intervals = () if where is None else intervals_of(where, self.schema(scope.table_id, place.schema_version))
            values = values_of(intervals, start_ns=start_ns, end_ns=end_ns)
            return self._listed(transaction, place, tuple(each.sort for each in intervals), values, stats)

    def hot(self, scope: Scope, *, sequence: int | None = None) -> list[HotBatch]:
        """List the hot rows of a snapshot, oldest first."""
        with self._database.reading() as transaction:
            return self._hot(transaction, self._place(transaction, scope, sequence))

    def manifest(self, scope: Scope, *, sequence: int | None = None) -> Manifest:
        """Give a snapshot with everything live in it. Its offsets are the head's."""
        with self._database.reading() as transaction:
            place = self._place(transaction, scope, sequence)
            if place.is_head:
                snapshot = self._head_in(transaction, scope)
            else:
                named = {"scope_id": place.scope_id, "sequence": place.sequence}
                snapshot = self._snapshots_of(transaction, place, transaction.rows(_snapshot_by_sequence, named))[0]
            if place.scope_id is None:
                return Manifest(snapshot)
            values = values_of((), start_ns=None, end_ns=None)
            return Manifest(
                snapshot,
                {extent.id: extent for extent in self._listed(transaction, place, (), values, None)},
                {batch.id: batch for batch in self._hot(transaction, place)},
                dict(transaction.rows(_offsets, {"scope_id": place.scope_id})),
            )

    def changes(self, scope: Scope, *, after: int, upto: int) -> Changes:
        """Say what differs between two retained snapshots; ``after`` 0 stands for the empty scope."""
        if after > upto:
            raise InvalidInputError("changes go forward", after=after, upto=upto)
        with self._database.reading() as transaction:
            place = self._place(transaction, scope, upto)
            if place.scope_id is None:
                return Changes((), (), (), ())
            if after:
                self._check_retained(transaction, place, after)
            values = {
                "scope_id": place.scope_id,
                "after": after,
                "upto": upto,
                "first": ordinal_of(after + 1, 0),
                "last": ordinal_of(upto + 1, 0),
            }
            added = transaction.rows(_added_extents, values)
            return Changes(
                added=tuple(self._with_stats(transaction, place, added, None)),
                removed=tuple(row[0] for row in transaction.rows(_removed_extents, values)),
                appended=tuple(map(_batch_of, transaction.rows(_added_hot, values))),
                dropped=tuple(row[0] for row in transaction.rows(_removed_hot, values)),
            )

    def live(self, scope: Scope, ids: Collection[str]) -> frozenset[str]:
        """Say which of some extents and hot batches are live at the head."""
        with self._database.reading() as transaction:
            place = self._place(transaction, scope)
            if place.scope_id is None:
                return frozenset()
            values = {"scope_id": place.scope_id, "ids": orjson.dumps(list(ids)).decode()}
            return frozenset(row[0] for row in transaction.rows(_live, values))

    def _head_in(self, transaction: Transaction, scope: Scope, *, hold: bool = False) -> Snapshot:
        """Give the newest snapshot as a transaction sees it, and keep it the newest until the transaction ends."""
        if hold:
            transaction.rows(_hold, _named(scope))
        return self._head_of(scope, transaction.rows(_head, _named(scope)))

    def _head_of(self, scope: Scope, rows: Sequence[Row]) -> Snapshot:
        row = _checked(scope, rows)
        schema = self.schema(scope.table_id, row[1])
        settings = self._settings_at(scope.table_id, row[2])
        if row[4] is None:
            return empty_snapshot(scope, schema, settings)
        return _snapshot_of(scope, row[4:], schema, settings)

    def _place(self, transaction: Transaction, scope: Scope, sequence: int | None = None) -> _Place:
        """Find a scope's number and the sequence that is meant, the head's if none is named."""
        dropped_us, schema_version, settings_seq, scope_id, head = _checked(
            scope, transaction.rows(_place, _named(scope))
        )
        del dropped_us
        head = head or 0
        place = _Place(scope, scope_id, head if sequence is None else sequence, head, schema_version, settings_seq)
        if not place.is_head:
            self._check_retained(transaction, place, place.sequence)
        return place

    def _check_retained(self, transaction: Transaction, place: _Place, sequence: int) -> None:
        named = {"scope_id": place.scope_id, "sequence": sequence}
        if place.scope_id is None or not transaction.rows(_snapshot_by_sequence, named):
            raise NotFoundError("no such snapshot, or it has expired", scope=place.scope, sequence=sequence)

    def _snapshots_of(self, transaction: Transaction, place: _Place, rows: Sequence[Row]) -> list[Snapshot]:
        """Read snapshots' rows, with the schema and settings each had; a user's have the table's settings of now."""
        scope, table_id = place.scope, place.scope.table_id
        changed = [place.settings_seq]
        if not scope.user:
            changed = [row[0] for row in transaction.rows(_settings_sequences, {"table_id": table_id})]
        found = []
        for row in rows:
            at = max(bisect_right(changed, row[0]) - 1, 0)
            settings = self._settings_at(table_id, changed[at])
            found.append(_snapshot_of(scope, row, self.schema(table_id, row[5]), settings))
        return found

    def _settings_at(self, table_id: str, sequence: int) -> Mapping[str, Any]:
        found = self._settings.get((table_id, sequence))
        if found is None:
            rows = self._database.query(_settings, {"table_id": table_id, "sequence": sequence})
            found = _keep(self._settings, (table_id, sequence), orjson.loads(rows[0][0]))
        return found

    def _listed(
        self,
        transaction: Transaction,
        place: _Place,
        sorts: tuple[Sort, ...],
        values: dict[str, Any],
        stats: Collection[str] | None,
    ) -> list[Extent]:
        values |= {"scope_id": place.scope_id, "sequence": place.sequence}
        by_time = (values["first_ns"], values["last_ns"]) != (LEAST_NS, MOST_NS)
        rows = transaction.rows(self._listing(sorts, live=True, by_time=by_time), values)
        if not place.is_head:
            rows += transaction.rows(self._listing(sorts, live=False, by_time=by_time), values)
        rows = in_order(rows)
        return self._with_stats(transaction, place, rows, stats)

    def _listing(self, sorts: tuple[Sort, ...], *, live: bool, by_time: bool) -> Select[Any]:
        return select_extents(sorts, live=live, by_time=by_time, dialect=self._database.dialect.name)

    def _with_stats(
        self, transaction: Transaction, place: _Place, rows: Sequence[Row], stats: Collection[str] | None
    ) -> list[Extent]:
        if not rows or (stats is not None and not stats):
            return [row_to_extent(row, {}) for row in rows]
        known: dict[int, dict[str, Any]] = {row[0]: {} for row in rows}
        values = {"scope_id": place.scope_id, **stats_parameters(rows, stats)}
        for ordinal, name, body in transaction.rows(select_stats if stats is None else select_some_stats, values):
            known[ordinal][name] = orjson.loads(body)
        return [row_to_extent(row, known[row[0]]) for row in rows]

    def _hot(self, transaction: Transaction, place: _Place) -> list[HotBatch]:
        if place.scope_id is None:
            return []
        values = {"scope_id": place.scope_id, "sequence": place.sequence}
        return [_batch_of(row) for row in transaction.rows(_hot_at_head if place.is_head else _hot_before, values)]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where to look: a scope's number, the sequence that is meant, and the table's state."""

    scope: Scope
    scope_id: int | None
    sequence: int
    head: int
    schema_version: int
    settings_seq: int

    @property
    def is_head(self) -> bool:
        return self.sequence == self.head


def counts_to_text(snapshot: Snapshot) -> str:
    """Give a snapshot's counts as they are stored."""
    parts = (snapshot.totals, snapshot.added, snapshot.removed)
    return orjson.dumps([[getattr(part, name) for name in _COUNTS] for part in parts]).decode()


def _snapshot_of(scope: Scope, row: Row, schema: Schema, settings: Mapping[str, Any]) -> Snapshot:
    totals, added, removed = (Counts(*each) for each in orjson.loads(row[6]))
    coverage = None if row[7] is None else Coverage(row[7], row[8])
    return Snapshot(scope, row[0], row[1], row[2], row[3], row[4], schema, settings, totals, added, removed, coverage)


def _batch_of(row: Row) -> HotBatch:
    low, high = row[3], row[4]
    return HotBatch(
        id=row[0],
        rows=row[1],
        payload=row[2],
        min_ts_ns=None if low == LEAST_NS else low,
        max_ts_ns=None if high == MOST_NS else high,
        schema_version=row[5],
        added_seq=row[6],
        removed_seq=row[7],
    )


def _checked(scope: Scope, rows: Sequence[Row]) -> Row:
    """Give the row of a scope's table, if there is one and it is not dropped."""
    if not rows or rows[0][0] is not None:
        raise NotFoundError("no such table, or it was dropped", table=scope.table_id, kind="no_table")
    return rows[0]


def _named(scope: Scope) -> dict[str, Any]:
    return {"table_id": scope.table_id, "user_id": scope.user}


def _keep(kept: dict[Any, Any], key: Any, value: Any) -> Any:
    if len(kept) >= KEPT:
        kept.clear()
    kept[key] = value
    return value


_COUNTS = tuple(field.name for field in fields(Counts))

"""Read snapshots out of the SQL catalog.

Schemas and settings are immutable once numbered, so each is read once and kept. A state that needs several statements
is read in one transaction. Every row is held against its checksum, and every listing against what its snapshot counts:
an answer is whole, or CorruptError. It does not change anything.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from tidelake.catalog.protocol import Changes, HotHeader, Sort, TableInfo, expired, intervals_of, parse_table_name
from tidelake.catalog.sql.checksums import (
    check_count,
    check_head,
    check_in_a_row,
    check_numbers,
    check_row,
    check_scope_is_there,
    check_snapshot,
    damaged,
    decoding,
    if_known,
)
from tidelake.catalog.sql.driver import Database, Row, Transaction
from tidelake.catalog.sql.extent_listing import (
    EXTENT_COLUMNS,
    MAX_NS,
    MIN_NS,
    check_bounds,
    check_extent,
    in_order,
    ordinal_of,
    rows_to_extents,
    select_bounds,
    select_extents,
    select_some_stats,
    select_stats,
    stats_parameters,
    values_of,
)
from tidelake.catalog.sql.offsets import offsets_of
from tidelake.catalog.sql.setup import has_later
from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.model.predicate import Predicate
from tidelake.model.schema import Schema
from tidelake.model.snapshot import Counts, Extent, HotBatch, Manifest, Scope, Snapshot, UnitedCoverage, empty_snapshot

KEPT = 4096  # schemas, and settings, kept in memory
SCOPES_PAGE = 1000

_TABLE_COLUMNS = "id, namespace, name, created_us, dropped_us"
_SNAPSHOT_COLUMNS = """
    n.sequence, n.id, n.parent_id, n.committed_us, n.operation, n.schema_version, n.counts, n.coverage_key,
    n.coverage_as_of, n.checksum"""  # of snapshots AS n
_HOT_COLUMNS = """
    h.id, h.rows, h.payload, h.min_ts_ns, h.max_ts_ns, h.schema_version, h.added_seq, h.removed_seq, h.ordinal,
    h.checksum, h.first_seq"""  # of hot_batches AS h

_tables = f"""
    SELECT {_TABLE_COLUMNS} FROM tables
    WHERE dropped_us IS NULL AND (CAST(:namespace AS TEXT) IS NULL OR namespace = :namespace)
    ORDER BY namespace, name"""
_table = f"""
    SELECT {_TABLE_COLUMNS} FROM tables WHERE dropped_us IS NULL AND namespace = :namespace AND name = :name"""
_table_and_scope = "tables AS t LEFT JOIN scopes AS s ON s.table_id = t.id AND s.user_id = :user_id"
_place = f"""
    SELECT t.dropped_us, t.schema_version, t.settings_seq, s.id, s.sequence
    FROM {_table_and_scope} WHERE t.id = :table_id"""  # of a scope: its table's state, its number and its head
_head = f"""
    SELECT t.dropped_us, t.schema_version, t.settings_seq, s.id, s.sequence, s.snapshot_id, {_SNAPSHOT_COLUMNS}
    FROM {_table_and_scope} LEFT JOIN snapshots AS n ON n.scope_id = s.id AND n.sequence = s.sequence
    WHERE t.id = :table_id"""
scope_id = "SELECT id FROM scopes WHERE table_id = :table_id AND user_id = :user_id"
_hold = f"{scope_id} FOR UPDATE"
_snapshots = f"SELECT {_SNAPSHOT_COLUMNS} FROM snapshots AS n WHERE n.scope_id = :scope_id"
_snapshot_by_sequence = f"{_snapshots} AND n.sequence = :sequence"
_snapshot_by_id = f"{_snapshots} AND n.id = :id"
_snapshot_at = f"{_snapshots} AND n.committed_us <= :at_us ORDER BY n.committed_us DESC LIMIT 1"
_history = f"{_snapshots} AND n.sequence < :upto ORDER BY n.sequence DESC LIMIT :limit"
_gaps = """
    SELECT g.sequence, g.ended_us, g.checksum FROM gaps AS g WHERE g.scope_id = :scope_id AND g.sequence >= :after"""
_schema = "SELECT b.body, b.checksum FROM schemas AS b WHERE b.table_id = :table_id AND b.version = :sequence"
_settings = "SELECT b.body, b.checksum FROM settings AS b WHERE b.table_id = :table_id AND b.sequence = :sequence"
_settings_seq = "SELECT settings_seq FROM tables WHERE id = :table_id"
_settings_sequences = "SELECT sequence FROM settings WHERE table_id = :table_id ORDER BY sequence"
_scopes = f"""
    SELECT id, user_id FROM scopes WHERE table_id = :table_id AND user_id > :user_id
    ORDER BY user_id LIMIT {SCOPES_PAGE}"""
_shared_scope = "SELECT id FROM scopes WHERE table_id = :table_id AND user_id = ''"

_headers = "SELECT h.id, h.rows, h.min_ts_ns, h.max_ts_ns FROM hot_batches AS h WHERE h.scope_id = :scope_id"
_hot = f"SELECT {_HOT_COLUMNS} FROM hot_batches AS h WHERE h.scope_id = :scope_id"
_some_hot = f"{_hot} AND h.id AMONG :ids AS TEXT"
_at_head = "AND h.removed_seq IS NULL AND h.added_seq <= :sequence ORDER BY h.ordinal"
_before = """
    AND h.added_seq <= :sequence AND (h.removed_seq IS NULL OR h.removed_seq > :sequence)
    ORDER BY h.ordinal"""
_hot_at_head, _some_hot_at_head, _headers_at_head = (f"{each} {_at_head}" for each in (_hot, _some_hot, _headers))
_hot_before, _some_hot_before, _headers_before = (f"{each} {_before}" for each in (_hot, _some_hot, _headers))
_counts = "SELECT counts FROM snapshots WHERE scope_id = :scope_id AND sequence = :sequence"
# Of a snapshot, without an index that may not have all of them.
_counted = """
    SELECT count(*), sum(row_count) FROM extents WHERE scope_id = :scope_id AND added_seq <= :sequence
    AND (removed_seq IS NULL OR removed_seq > :sequence)"""
_extents_after = f"SELECT {EXTENT_COLUMNS} FROM extents AS e WHERE e.scope_id = :scope_id AND e.ordinal > :after"
_live = " UNION ALL ".join(
    f"SELECT id FROM {of} WHERE scope_id = :scope_id AND id AMONG :ids AS TEXT AND removed_seq IS NULL"
    for of in ("extents", "hot_batches")
)
_added_extents, _added_hot = (
    f"""
    SELECT {columns} FROM {of}
    WHERE {own}.scope_id = :scope_id AND {own}.ordinal >= :first AND {own}.ordinal < :last
    AND ({own}.removed_seq IS NULL OR {own}.removed_seq > :upto)
    ORDER BY {own}.ordinal"""
    for of, own, columns in (("extents AS e", "e", EXTENT_COLUMNS), ("hot_batches AS h", "h", _HOT_COLUMNS))
)
_removed_extents, _removed_hot = (
    f"""
    SELECT id FROM {of}
    WHERE scope_id = :scope_id AND removed_seq > :after AND removed_seq <= :upto AND added_seq <= :after
    ORDER BY ordinal"""
    for of in ("extents", "hot_batches")
)


class SqlReader:
    """The reading half of the SQL catalog."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # Immutable once numbered, so a copy is never stale.
        self._schemas: dict[tuple[str, int], Schema] = {}
        self._settings: dict[tuple[str, int], Mapping[str, Any]] = {}
        self._listings: dict[tuple[tuple[Sort, ...], bool, bool], str] = {}
        self._sound: set[tuple[Any, ...]] = set()  # what was counted: a scope, a snapshot's extents and rows
        self._sound_upto: dict[tuple[int, str], int] = {}  # the last ordinal checked, by scope and column

    def table(self, name: str) -> TableInfo:
        """Find a table by ``name`` or ``namespace.name``; NotFoundError if there is none."""
        namespace, own = parse_table_name(name)
        rows = self._database.query(_table, {"namespace": namespace, "name": own})
        if not rows:
            raise NotFoundError("no such table", table=f"{namespace}.{own}", kind="no_table")
        return TableInfo(*rows[0])

    def tables(self, namespace: str | None = None) -> list[TableInfo]:
        """List the tables that are not dropped, by name."""
        return [TableInfo(*row) for row in self._database.query(_tables, {"namespace": namespace})]

    def schema(self, table_id: str, version: int) -> Schema:
        """Return one version of a table's schema."""
        found = self._schemas.get((table_id, version))
        if found is None:
            rows = self._database.query(_schema, {"table_id": table_id, "sequence": version})
            if not rows:
                raise NotFoundError("no such schema version", table=table_id, version=version)
            body, checksum = rows[0]
            check_row(checksum, "a schema", table_id, version, body)
            with decoding("a schema"):
                found = _keep(self._schemas, (table_id, version), Schema.from_json(orjson.loads(body)))
        return found

    def settings(self, table_id: str) -> Mapping[str, Any]:
        """Return a table's settings as they are now, or were when it was dropped."""
        for (sequence,) in self._database.query(_settings_seq, {"table_id": table_id}):
            return self._settings_at(table_id, sequence)
        raise NotFoundError("no such table", table=table_id, kind="no_table")

    def scopes(self, table_id: str, *, after: str = "") -> Iterator[Scope]:
        """Yield every scope of a table that has a snapshot, the shared one first; or of the users after one."""
        if not after and self._database.query(_shared_scope, {"table_id": table_id}):
            yield Scope(table_id)
        user = after
        while page := self._database.query(_scopes, {"table_id": table_id, "user_id": user}):
            yield from (Scope(table_id, row[1]) for row in page)
            user = page[-1][1]

    def head(self, scope: Scope) -> Snapshot:
        """Return the newest snapshot; for a user without commits, the empty one at sequence 0."""
        return self._head_of(scope, self._database.query(_head, _named(scope)))

    def snapshot(
        self, scope: Scope, *, sequence: int | None = None, snapshot_id: str | None = None, at_us: int | None = None
    ) -> Snapshot:
        """Return a retained snapshot by exactly one of sequence, id, or the newest at or before a time."""
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
            if not found or (at_us is not None and self._is_over(transaction, place, found[0][0], at_us)):
                wanted = next(name for name in (sequence, snapshot_id, at_us) if name is not None)
                raise expired(scope, wanted)
            return self._snapshots_of(transaction, place, found)[0]

    def history(self, scope: Scope, *, limit: int = 100, before: int | None = None) -> list[Snapshot]:
        """List retained snapshots, newest first, those below sequence ``before`` if given."""
        with self._database.reading() as transaction:
            place = self._place(transaction, scope)
            if place.scope_id is None:
                return []
            upto = MAX_NS if before is None else before
            rows = transaction.rows(_history, {"scope_id": place.scope_id, "upto": upto, "limit": limit})
            sequences = [row[0] for row in rows]
            gaps = self._gaps(transaction, place, after=sequences[-1]) if _has_holes(sequences) else {}
            check_in_a_row(sequences, place.head if before is None else None, gaps)
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
        ids: Collection[str] | None = None,
    ) -> list[Extent]:
        """List the extents of a snapshot that may hold rows in ``[start_ns, end_ns)`` that match ``where``."""
        with self._database.reading() as transaction:
            place = self._place(transaction, scope, sequence)
            if place.scope_id is None:
                return []
            intervals = () if where is None else intervals_of(where, self.schema(scope.table_id, place.schema_version))
            values = values_of(intervals, start_ns=start_ns, end_ns=end_ns)
            self._check_bounds(transaction, place, [each.column for each in intervals])
            return self._listed(transaction, place, tuple(each.sort for each in intervals), values, stats, ids)

    def hot(self, scope: Scope, *, sequence: int | None = None, ids: Collection[str] | None = None) -> list[HotBatch]:
        """List the hot rows of a snapshot, oldest first, or only those batches of some ids that it has."""
        with self._database.reading() as transaction:
            return self._hot(transaction, self._place(transaction, scope, sequence), ids)

    def hot_headers(self, scope: Scope, *, sequence: int | None = None) -> list[HotHeader]:
        """List the hot batches of a snapshot without their rows, oldest first."""
        with self._database.reading() as transaction:
            place = self._place(transaction, scope, sequence)
            if place.scope_id is None:
                return []
            values = {"scope_id": place.scope_id, "sequence": place.sequence}
            rows = transaction.rows(_headers_at_head if place.is_head else _headers_before, values)
            totals = self._totals(transaction, place)
        with decoding("a hot batch"):
            found = [HotHeader(row[0], row[1], _low(row[2]), _high(row[3])) for row in rows]
            check_count("hot rows", totals.hot_batches, totals.hot_rows, len(found), sum(each.rows for each in found))
        return found

    def manifest(self, scope: Scope, *, sequence: int | None = None) -> Manifest:
        """Return a snapshot with everything live in it. Its offsets are the head's."""
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
                offsets_of(transaction, place.scope_id),
            )

    def changes(self, scope: Scope, *, after: int, upto: int) -> Changes:
        """Return what differs between two retained snapshots; ``after`` 0 stands for the empty scope."""
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
            found = Changes(
                added=tuple(self._with_stats(transaction, place, added, None)),
                removed=tuple(row[0] for row in transaction.rows(_removed_extents, values)),
                appended=tuple(_batches_of(place.scope_id, transaction.rows(_added_hot, values))),
                dropped=tuple(row[0] for row in transaction.rows(_removed_hot, values)),
            )
            self._check_changes(transaction, place, after, found)
            return found

    def live(self, scope: Scope, ids: Collection[str]) -> frozenset[str]:
        """Return which of some extents and hot batches are live at the head."""
        with self._database.reading() as transaction:
            place = self._place(transaction, scope)
            if place.scope_id is None:
                return frozenset()
            values = {"scope_id": place.scope_id, "ids": orjson.dumps(list(ids)).decode()}
            return frozenset(row[0] for row in transaction.rows(_live, values))

    def _head_in(self, transaction: Transaction, scope: Scope, *, hold: bool = False) -> Snapshot:
        """Return the newest snapshot as a transaction sees it, and keep it the newest until the transaction ends."""
        if hold:
            transaction.rows(_hold, _named(scope))
        return self._head_of(scope, transaction.rows(_head, _named(scope)))

    def _head_of(self, scope: Scope, rows: Sequence[Row]) -> Snapshot:
        row = _checked(scope, rows)
        check_head(scope, row)
        with decoding("a table"):
            schema = self.schema(scope.table_id, row[1])
        settings = self._settings_at(scope.table_id, row[2])
        if row[3] is None:
            return empty_snapshot(scope, schema, settings)
        return _snapshot_of(scope, row[6:], schema, settings)

    def _place(self, transaction: Transaction, scope: Scope, sequence: int | None = None) -> _Place:
        """Find a scope's number and the sequence that is meant, the head's if none is named."""
        dropped_us, schema_version, settings_seq, scope_id, head = _checked(
            scope, transaction.rows(_place, _named(scope))
        )
        check_numbers("a table", dropped_us, schema_version, settings_seq, scope_id, head)
        check_scope_is_there(scope, scope_id)
        head = head or 0
        place = _Place(scope, scope_id, head if sequence is None else sequence, head, schema_version, settings_seq)
        if not place.is_head:
            self._check_retained(transaction, place, place.sequence)
        return place

    def _check_retained(self, transaction: Transaction, place: _Place, sequence: int) -> None:
        named = {"scope_id": place.scope_id, "sequence": sequence}
        if place.scope_id is None or not transaction.rows(_snapshot_by_sequence, named):
            raise expired(place.scope, sequence)

    def _is_over(self, transaction: Transaction, place: _Place, sequence: int, at_us: int) -> bool:
        """Whether the newest retained snapshot before a time had been followed by then, by one that has expired."""
        following = {"scope_id": place.scope_id, "sequence": sequence + 1}
        if sequence == place.head or transaction.rows(_counts, following):
            return False
        gaps = self._gaps(transaction, place, after=sequence)
        check_in_a_row((sequence + 2, sequence), None, gaps)
        return gaps[sequence] <= at_us

    def _gaps(self, transaction: Transaction, place: _Place, *, after: int) -> dict[int, int]:
        """Return the snapshots from a sequence on whose successor has expired, and when each had ended."""
        if not has_later(self._database, transaction.rows):
            return {}
        rows = transaction.rows(_gaps, {"scope_id": place.scope_id, "after": after})
        for row in rows:
            check_row(row[2], "a gap", place.scope_id, *row[:2])
        return {sequence: ended_us for sequence, ended_us, _ in rows}

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
            if not rows:
                raise damaged("settings", "they are not there", table=table_id, sequence=sequence)
            body, checksum = rows[0]
            check_row(checksum, "settings", table_id, sequence, body)
            with decoding("settings"):
                found = _keep(self._settings, (table_id, sequence), orjson.loads(body))
        return found

    def _listed(
        self,
        transaction: Transaction,
        place: _Place,
        sorts: tuple[Sort, ...],
        values: dict[str, Any],
        stats: Collection[str] | None,
        ids: Collection[str] | None = None,
    ) -> list[Extent]:
        values |= {"scope_id": place.scope_id, "sequence": place.sequence}
        by_time = (values["first_ns"], values["last_ns"]) != (MIN_NS, MAX_NS)
        rows = transaction.rows(self._listing(sorts, live=True, by_time=by_time), values)
        if not place.is_head:
            rows += transaction.rows(self._listing(sorts, live=False, by_time=by_time), values)
        with decoding("an extent"):
            rows = in_order(rows)
        if by_time or sorts:
            self._check_extents(transaction, place)
        else:
            totals = self._totals(transaction, place)
            with decoding("an extent"):
                check_count("extents", totals.extents, totals.rows, len(rows), sum(row[5] for row in rows))
        if ids is not None:
            wanted = frozenset(ids)
            rows = [row for row in rows if row[1] in wanted]
        return self._with_stats(transaction, place, rows, stats)

    def _listing(self, sorts: tuple[Sort, ...], *, live: bool, by_time: bool) -> str:
        statement = self._listings.get((sorts, live, by_time))
        if statement is None:
            dialect = "sqlite" if self._database.is_sqlite else "postgresql"
            statement = select_extents(sorts, live=live, by_time=by_time, dialect=dialect)
            self._listings[sorts, live, by_time] = statement
        return statement

    def _with_stats(
        self, transaction: Transaction, place: _Place, rows: Sequence[Row], stats: Collection[str] | None
    ) -> list[Extent]:
        scope_id = place.scope_id
        if scope_id is None or not rows:
            return []
        if stats is not None and not stats:
            return rows_to_extents(scope_id, rows, {})
        known: dict[int, dict[str, Any]] = {row[0]: {} for row in rows}
        values = {"scope_id": scope_id, **stats_parameters(rows, stats)}
        found = transaction.rows(select_stats if stats is None else select_some_stats, values)
        with decoding("statistics"):
            for ordinal, name, body, checksum in found:
                check_row(checksum, "statistics", scope_id, ordinal, name, body)
                known[ordinal][name] = orjson.loads(body)
        return rows_to_extents(scope_id, rows, known)

    def _hot(self, transaction: Transaction, place: _Place, ids: Collection[str] | None = None) -> list[HotBatch]:
        if place.scope_id is None:
            return []
        values: dict[str, Any] = {"scope_id": place.scope_id, "sequence": place.sequence}
        if ids is not None:
            values["ids"] = orjson.dumps(list(ids)).decode()
            rows = transaction.rows(_some_hot_at_head if place.is_head else _some_hot_before, values)
            return _batches_of(place.scope_id, rows)
        rows = transaction.rows(_hot_at_head if place.is_head else _hot_before, values)
        found = _batches_of(place.scope_id, rows)
        totals = self._totals(transaction, place)
        with decoding("a hot batch"):
            check_count("hot rows", totals.hot_batches, totals.hot_rows, len(found), sum(each.rows for each in found))
        return found

    def _totals(self, transaction: Transaction, place: _Place) -> Counts:
        """Return what a snapshot counts."""
        rows = transaction.rows(_counts, {"scope_id": place.scope_id, "sequence": place.sequence})
        if not rows:
            raise damaged("a snapshot", "it is not there", scope=place.scope, sequence=place.sequence)
        with decoding("a snapshot"):
            return _counts_of(rows[0][0])[0]

    def _check_changes(self, transaction: Transaction, place: _Place, after: int, found: Changes) -> None:
        """Refuse changes that do not lead from what one snapshot counts to what the other does."""
        now = self._totals(transaction, place)
        before = self._totals(transaction, replace(place, sequence=after)) if after else None
        extents, batches = (before.extents, before.hot_batches) if before is not None else (0, 0)
        check_count(
            "changes",
            now.extents - extents,
            now.hot_batches - batches,
            len(found.added) - len(found.removed),
            len(found.appended) - len(found.dropped),
        )

    def _check_extents(self, transaction: Transaction, place: _Place) -> None:
        """Hold the extents that the database leaves out against checksums and counts, once for what a snapshot has."""
        assert place.scope_id is not None
        totals = self._totals(transaction, place)
        key = (place.scope_id, place.sequence if not place.is_head else 0, totals.extents, totals.rows, totals.bytes)
        if key in self._sound:
            return
        values = {"scope_id": place.scope_id, "sequence": place.sequence}
        upto = self._sound_upto.get((place.scope_id, ""), -1)
        for row in transaction.rows(_extents_after, {**values, "after": upto}):
            check_extent(place.scope_id, row)
        count, rows = transaction.rows(_counted, values)[0]
        check_count("extents", totals.extents, totals.rows, count, rows or 0)
        _keep(self._sound_upto, (place.scope_id, ""), ordinal_of(place.head + 1, 0) - 1)
        if len(self._sound) >= KEPT:
            self._sound.clear()
        self._sound.add(key)

    def _check_bounds(self, transaction: Transaction, place: _Place, names: Sequence[str]) -> None:
        """Hold the bounds that the database judges by against their checksums, once for each extent."""
        assert place.scope_id is not None
        for name in names:
            upto = self._sound_upto.get((place.scope_id, name), -1)
            values = {"scope_id": place.scope_id, "after": upto, "names": orjson.dumps([name]).decode()}
            check_bounds(place.scope_id, transaction.rows(select_bounds, values))
            _keep(self._sound_upto, (place.scope_id, name), ordinal_of(place.head + 1, 0) - 1)


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


def _snapshot_of(scope: Scope, row: Row, schema: Schema, settings: Mapping[str, Any]) -> Snapshot:
    check_snapshot(scope, settings, row)
    with decoding("a snapshot"):
        totals, added, removed, next_seq = _counts_of(row[6])
    coverage = None if row[7] is None else UnitedCoverage(row[7], row[8])
    header = Snapshot(scope, row[0], row[1], row[2], row[3], row[4], schema, settings, totals, added, removed, coverage)
    return replace(header, next_seq=next_seq) if next_seq else header


def _counts_of(text: str) -> tuple[Counts, Counts, Counts, int]:
    totals, added, removed, *rest = orjson.loads(text)
    ((next_seq,),) = rest or [[0]]
    return Counts(*totals), Counts(*added), Counts(*removed), next_seq


def _batches_of(scope_id: int, rows: Sequence[Row]) -> list[HotBatch]:
    for row in rows:
        check_row(row[9], "a hot batch", scope_id, row[8], *row[:7], *if_known(row[10]))
    with decoding("a hot batch"):
        return [_batch_of(row) for row in rows]


def _batch_of(row: Row) -> HotBatch:
    return HotBatch(
        id=row[0],
        rows=row[1],
        payload=row[2],
        min_ts_ns=_low(row[3]),
        max_ts_ns=_high(row[4]),
        schema_version=row[5],
        added_seq=row[6],
        removed_seq=row[7],
        first_seq=row[10],
    )


def _low(bound: int) -> int | None:
    return None if bound == MIN_NS else bound


def _high(bound: int) -> int | None:
    return None if bound == MAX_NS else bound


def _has_holes(sequences: Sequence[int]) -> bool:
    return bool(sequences) and sequences[0] - sequences[-1] >= len(sequences)


def _checked(scope: Scope, rows: Sequence[Row]) -> Row:
    """Return the row of a scope's table, if there is one and it is not dropped."""
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

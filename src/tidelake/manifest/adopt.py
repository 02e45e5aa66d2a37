"""Adopt scopes that others wrote, or whose catalog is lost: folders of segments with a ``manifest.json``, no catalog.

::

    <namespace>/<table>/manifest.json + batch-N.parquet            a shared table
    <namespace>/<table>/<user>/manifest.json + batch-N.parquet     one user of a table

1. Look whether a folder holds nothing else; the first thing that is something else ends it.
2. Read every manifest and the footer of every segment, and check that each is there with the size and the rows that it
   should have. Any that is not is an error that names it, and nothing was changed.
3. Write a catalog under another name, whole, and then give it its own: so a lake is adopted, or not at all.

Files that store ``_seq`` are versions of rows: their table has a key, whose columns are told, or noted in the manifest,
or those that have statistics. A manifest that is torn is made again from the footers, as long as those tell which rows
count: with ``_seq`` they do, without it a compacted file and what it was made of cannot be told apart. It does not
write segments or manifests.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from tidelake.catalog.names import check_user
from tidelake.catalog.protocol import Catalog, Pending, new_id, parse_table_name
from tidelake.catalog.sql.sql_catalog import SqlCatalog
from tidelake.errors import CorruptError, InvalidInputError, NotFoundError, SchemaError
from tidelake.format import ExtentMetadata, segment_format
from tidelake.manifest.manifest_json import MANIFEST_NAME, ScopeManifest, Segment, from_bytes
from tidelake.manifest.parts import all_segments
from tidelake.manifest.segments import NOTED, batch_number
from tidelake.manifest.stored import read_part
from tidelake.model.schema import DELETED_COLUMN, HIDDEN_IDS, SEQ_COLUMN, DataType, Schema
from tidelake.model.settings import SEGMENT_FORMAT, USER, USERS_FLUSH_AGE, TableSettings
from tidelake.model.snapshot import AddExtent, Commit, Extent, Scope, UpdateTable
from tidelake.objects import CATALOG_FILE, ObjectStore, batch_key, open_store, scope_folder
from tidelake.pruning.statistics import column_to_json, merge
from tidelake.runtime.processes import process_name

ADOPTING = f"{CATALOG_FILE}-adopting-"  # how a catalog is named until it is whole; no object can be
MAX_SEQ = 2**62  # of a row: there must be room above it
KEY_KINDS = ("int", "long", "string", "bool", "timestamp")

_SEGMENT = re.compile(r"(?:batch-[0-9]+|compact-[0-9a-f-]+)\.parquet")


@dataclass(frozen=True, slots=True)
class _FoundScope:
    """A scope as its manifest and its segments' footers tell it."""

    user: str
    folder: str
    manifest: ScopeManifest | None  # None: it was torn
    segments: tuple[_FoundSegment, ...]


@dataclass(frozen=True, slots=True)
class _FoundSegment:
    """A segment that is there as it should be."""

    key: str
    listed: Segment | None
    footer: ExtentMetadata


@dataclass(slots=True)
class _FoundTable:
    """A table that is to be adopted."""

    name: str
    scopes: list[_FoundScope] = field(default_factory=list)
    has_users: bool = False


def adopt_if_segments(folder: Path, keys: Mapping[str, Sequence[str]], *, deadline_s: float) -> bool:
    """Make the catalog of a folder that holds tables of segments; False if it holds anything else, or nothing.

    If several processes do so at once, one of them wins.
    """
    try:
        places = list(_table_folders(folder)) if folder.is_dir() else []  # 1
    except _SomethingElse:
        return False
    if not places:
        return False
    store = open_store(folder, create=False)
    tables = [_found_table(store, each) for each in places]  # 2
    if unknown := sorted(set(keys) - {each.name for each in tables}):
        raise NotFoundError("no such table to adopt", table=unknown[0], found=", ".join(each.name for each in tables))
    place = folder / f"{ADOPTING}{new_id()}"
    try:
        with SqlCatalog(place, deadline_s=deadline_s) as catalog:
            for table in tables:
                _register(catalog, store, table, keys.get(table.name))
        with suppress(FileExistsError):
            os.link(place, folder / CATALOG_FILE)  # 3
    finally:
        for left in folder.glob(f"{place.name}*"):
            left.unlink(missing_ok=True)
    return True


class _SomethingElse(Exception):
    """A folder holds what is no table of segments."""


def _table_folders(root: Path) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield the tables in a folder: namespace, name, and the folders of their users, none of a shared one."""
    for namespace in _folders(root):
        for table in _folders(root / namespace):
            place = root / namespace / table
            if (place / MANIFEST_NAME).is_file() or any(map(_SEGMENT.fullmatch, os.listdir(place))):
                yield namespace, table, ()
                continue
            users = tuple(_folders(place))
            for user in users:
                if not any(name == MANIFEST_NAME or _SEGMENT.fullmatch(name) for name in os.listdir(place / user)):
                    raise _SomethingElse(place / user)
            if not users:
                raise _SomethingElse(place)
            yield namespace, table, users


def _folders(root: Path) -> Iterator[str]:
    with os.scandir(root) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        if entry.name.startswith(CATALOG_FILE):
            continue  # what a process that adopted it and was killed has left
        if not entry.is_dir(follow_symlinks=False):
            raise _SomethingElse(entry.path)
        yield entry.name


def _found_table(store: ObjectStore, place: tuple[str, str, tuple[str, ...]]) -> _FoundTable:
    namespace, table, users = place
    name = f"{namespace}.{table}"
    parse_table_name(name)
    if scope_folder(namespace, table) != f"{namespace}/{table}":
        raise InvalidInputError("a table of segments cannot be in a folder of this name", folder=f"{namespace}/{table}")
    if not users:
        return _FoundTable(name, [_found_scope(store, name, f"{namespace}/{table}", is_user=False)])
    scopes = [_found_scope(store, name, f"{namespace}/{table}/{user}", is_user=True) for user in users]
    return _FoundTable(name, scopes, has_users=True)


def _found_scope(store: ObjectStore, table: str, folder: str, *, is_user: bool) -> _FoundScope:
    manifest = _manifest(store, folder)
    if manifest is None:
        user = _user_of(folder) if is_user else ""
        keys = [meta.key for meta in store.list(folder) if _SEGMENT.fullmatch(meta.key[len(folder) + 1 :])]
        segments = tuple(_FoundSegment(key, None, _footer(store, key)) for key in keys)
        _check_tells_all(folder, segments)
        return _FoundScope(user, folder, None, segments)
    user = manifest.user_id or ""
    if bool(user) != is_user or manifest.table_id != table:
        raise CorruptError(
            "a manifest is another scope's", object=f"{folder}/{MANIFEST_NAME}", table=manifest.table_id,
            user=manifest.user_id, kind="bad_manifest",
        )  # fmt: skip
    if is_user:
        check_user(user)
    namespace, _, name = table.partition(".")
    if scope_folder(namespace, name, user) != folder:
        raise InvalidInputError(
            "the folder of a user is named otherwise", folder=folder, expected=scope_folder(namespace, name, user)
        )
    listed = [each.segment for each in all_segments(manifest, lambda ref: read_part(store, folder, ref))]
    committed = [each for each in listed if each.status == "committed"]
    return _FoundScope(user, folder, manifest, tuple(_segment(store, folder, each) for each in committed))


def _manifest(store: ObjectStore, folder: str) -> ScopeManifest | None:
    """Return a scope's manifest; None if it is torn or missing."""
    key = f"{folder}/{MANIFEST_NAME}"
    try:
        return from_bytes(bytes(store.get(key)), key)
    except (NotFoundError, CorruptError):
        return None


def _user_of(folder: str) -> str:
    return check_user(unquote(folder.rpartition("/")[2]))


def _segment(store: ObjectStore, folder: str, listed: Segment) -> _FoundSegment:
    """Read the footer of a segment, and hold it against what its manifest says."""
    key = f"{folder}/{listed.path}"
    footer = _footer(store, key)
    if footer.byte_size != listed.size_bytes or footer.row_count != listed.row_count:
        raise CorruptError(
            "a segment is not what its manifest says", object=key, bytes=footer.byte_size,
            expected_bytes=listed.size_bytes, rows=footer.row_count, expected_rows=listed.row_count,
            kind="bad_manifest",
        )  # fmt: skip
    return _FoundSegment(key, listed, footer)


def _footer(store: ObjectStore, key: str) -> ExtentMetadata:
    try:
        return segment_format(SEGMENT_FORMAT).open_extent(store, key).metadata()
    except NotFoundError as error:
        raise CorruptError("a segment that a manifest lists is missing", object=key, kind="bad_manifest") from error


def _check_tells_all(folder: str, segments: Sequence[_FoundSegment]) -> None:
    """Refuse files without a manifest where they alone do not tell which rows count."""
    has_versions = all(SEQ_COLUMN in each.footer.schema for each in segments)
    compacted = [each.key for each in segments if batch_number(each.key.rpartition("/")[2]) is None]
    if compacted and not has_versions:
        raise CorruptError(
            "the manifest is torn, and without it compacted rows cannot be told from those they were made of: "
            "restore it, or move either away",
            object=f"{folder}/{MANIFEST_NAME}",
            compacted=compacted[0],
            kind="bad_manifest",
        )


def _register(catalog: Catalog, store: ObjectStore, table: _FoundTable, key: Sequence[str] | None) -> None:
    """Put a table with all its scopes into a catalog that nobody else sees yet."""
    segments = [each for scope in table.scopes for each in scope.segments]
    if not segments:
        raise InvalidInputError("not a lake: a table without segments", table=table.name, kind="not_a_lake")
    schemas = _schemas(segments)
    settings = _settings(table, schemas[-1], key)
    for each in segments if settings.key else ():
        _check_versions(store, each, settings.key)
    info = catalog.create_table(table.name, schemas[0], settings.to_json())
    for schema in schemas[1:]:
        head = catalog.head(info.scope)
        catalog.commit([Commit(new_id(), info.scope, head.sequence, (UpdateTable(schema),), "adopt")], onto=head)
    for scope in table.scopes:
        _register_scope(catalog, Scope(info.id, scope.user), scope, schemas[-1], settings)


def _register_scope(
    catalog: Catalog, scope: Scope, found: _FoundScope, schema: Schema, settings: TableSettings
) -> None:
    extents = [_extent(each, schema, settings) for each in found.segments]
    pending = [Pending(each.key, scope, process_name()) for each in extents]
    last = found.manifest.last_sequence_number if found.manifest is not None else 0
    taken = batch_key(found.folder, last)
    if last and taken not in {each.key for each in extents}:  # a number that was used is not used again
        catalog.register_pending([Pending(taken, scope, process_name())])
        catalog.forget_pending([taken])
    if not extents:
        return
    catalog.register_pending(pending)
    head = catalog.head(scope)
    catalog.commit([Commit(new_id(), scope, head.sequence, tuple(map(AddExtent, extents)), "adopt")], onto=head)


def _check_versions(store: ObjectStore, found: _FoundSegment, key: Sequence[str]) -> None:
    """Refuse a segment whose rows lack a key, or two of which share one: readers compare segments, not rows of one."""
    for name, kind in ((SEQ_COLUMN, "long"), (DELETED_COLUMN, "bool")):
        if name in found.footer.schema and found.footer.schema[name].type != DataType.parse(kind):
            raise SchemaError(f"this column is a {kind}", object=found.key, column=name)
    if missing := [name for name in key if name not in found.footer.schema]:
        raise SchemaError("a segment lacks a key column", object=found.key, column=missing[0])
    reader = segment_format(SEGMENT_FORMAT).open_extent(store, found.key)
    rows = pa.Table.from_batches([reader.read_block(at, key) for at in range(len(found.footer.blocks))])
    if any(rows.column(name).null_count for name in key):
        raise InvalidInputError("a row has no key", object=found.key, key=", ".join(key), kind="no_key")
    if rows.group_by(list(key)).aggregate([]).num_rows != rows.num_rows:
        raise InvalidInputError(
            "two rows of a segment have one key", object=found.key, key=", ".join(key), kind="two_versions"
        )


def _schemas(segments: Sequence[_FoundSegment]) -> list[Schema]:
    """Return the schemas that a table had, each wider than the one before, without the columns that versions need."""
    found: list[Schema] = []
    by_age = sorted(segments, key=lambda each: each.listed.schema_version if each.listed is not None else 0)
    for each in by_age:
        columns = tuple(column for column in each.footer.schema if column.name not in HIDDEN_IDS)
        if not columns:
            raise SchemaError("a segment has no columns", object=each.key)
        nullable = [replace(column, nullable=True) for column in columns]
        if not found:
            found.append(Schema(tuple(nullable)))
            continue
        try:
            wider = found[-1].widen(nullable)
        except SchemaError as error:
            raise SchemaError(error.message, object=each.key, **error.facts, kind=error.kind) from None
        if wider != found[-1]:
            found.append(wider)
    return found


def _settings(table: _FoundTable, schema: Schema, key: Sequence[str] | None) -> TableSettings:
    manifests = [scope.manifest for scope in table.scopes if scope.manifest is not None]
    noted = next((each.notes.table for each in manifests if each.notes is not None and each.notes.table), {})
    told = {name: noted[name] for name in NOTED if name in noted}
    has_versions = any(SEQ_COLUMN in each.footer.schema for scope in table.scopes for each in scope.segments)
    names: Sequence[str] = tuple(key or told.get("key") or ())
    if has_versions and not names:
        names = _indexed_names(table, schema)
    for name in names:
        if schema[name].type.kind not in KEY_KINDS:
            raise SchemaError(f"a key column is one of {', '.join(KEY_KINDS)}", column=name, type=schema[name].type)
    time = told.get("time") or (None if names else _time_of(table, schema))
    stored: dict[str, Any] = {**told, "time": time, "key": list(names), "format": SEGMENT_FORMAT}
    if table.has_users:
        stored = {"flush_age": USERS_FLUSH_AGE, **stored, "scope": USER}
    return TableSettings.of(stored)


def _time_of(table: _FoundTable, schema: Schema) -> str | None:
    """Return the only column of times, if every row has one."""
    times = [column.name for column in schema if column.type == DataType("timestamp")]
    if len(times) != 1:
        return None
    blocks = [block.stats for scope in table.scopes for each in scope.segments for block in each.footer.blocks]
    is_whole = all(times[0] in each.columns and each.columns[times[0]].nulls == 0 for each in blocks)
    return times[0] if is_whole else None


def _indexed_names(table: _FoundTable, schema: Schema) -> tuple[str, ...]:
    """Return the columns that have statistics in every manifest: those that rows are looked up by."""
    segments = [each.listed for scope in table.scopes for each in scope.segments if each.listed is not None]
    ids = set.intersection(*(set(each.column_stats) for each in segments)) if segments else set()
    names = tuple(column.name for column in schema if column.id in ids)
    if not names:
        raise InvalidInputError(
            "the rows have versions, and no manifest says of which key: tell it, as "
            f"connect(…, adopt={{{table.name!r}: ['id']}})",
            table=table.name,
            kind="no_key",
        )
    return names


def _extent(found: _FoundSegment, schema: Schema, settings: TableSettings) -> Extent:
    footer = found.footer
    whole = merge([block.stats for block in footer.blocks]) if footer.blocks else None
    stats = {} if whole is None else {name: column_to_json(known) for name, known in sorted(whole.columns.items())}
    times = stats.get(settings.time or "", {})
    low, high = times.get("min"), times.get("max")
    bounded = type(low) is int and type(high) is int
    return Extent(
        id=footer.extent_id or new_id(),
        key=found.key,
        format=SEGMENT_FORMAT,
        byte_size=footer.byte_size,
        row_count=footer.row_count,
        block_count=len(footer.blocks),
        min_ts_ns=low if bounded else None,
        max_ts_ns=high if bounded else None,
        schema_version=schema.version,
        column_stats=stats,
        present_paths=tuple(sorted({path for each in stats.values() for path in each.get("paths") or ()})),
        level=0 if batch_number(found.key.rpartition("/")[2]) is not None else 1,
        first_seq=_first_seq(found, stats) if settings.key else None,
    )


def _first_seq(found: _FoundSegment, stats: Mapping[str, Any]) -> int:
    """Return the first version of a segment's rows such that none of them is above the last."""
    rows, listed = found.footer.row_count, found.listed
    if SEQ_COLUMN in found.footer.schema:
        high = stats.get(SEQ_COLUMN, {}).get("max")
        high = high if type(high) is int else listed.max_seq if listed is not None else None
        if high is None or high >= MAX_SEQ:
            raise CorruptError("a segment does not say its versions", object=found.key, max_seq=high)
        return high - rows + 1
    if listed is None or listed.max_seq - listed.min_seq + 1 != rows or listed.max_seq >= MAX_SEQ:
        raise CorruptError("a segment has no versions of its rows", object=found.key, column=SEQ_COLUMN)
    return listed.min_seq

"""Make a table: judge what it is told, and have the catalog keep it.

A table is made without anything that reads or writes rows, so that making one waits for no engine. It does not hold the
table: see ``handle``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidelake.catalog.names import refuse_staged
from tidelake.catalog.protocol import Catalog, TableInfo, parse_table_name
from tidelake.errors import InvalidInputError, SchemaError
from tidelake.model.schema import ENTITY_KINDS, HIDDEN_IDS, DataType, Schema
from tidelake.model.settings import (
    FLUSH_AGE,
    FLUSH_OFF,
    FORMATS,
    HISTORY,
    SCOPES,
    SEGMENT_FORMAT,
    SHARED,
    SUFFIX,
    USER,
    USERS_FLUSH_AGE,
    TableSettings,
)
from tidelake.model.times import duration_us
from tidelake.objects import scope_folder
from tidelake.runtime.deferred import deferred

buckets, schedules = deferred("tidelake.coverage.buckets"), deferred("tidelake.coverage.schedule")

MODES = ("exclusive", "track", "off")
KEY_KINDS = ("int", "long", "string", "bool", "timestamp")
RESERVED = ("start", "end", "buckets")  # columns of what is answered about coverage


def create_table(
    catalog: Catalog,
    name: str,
    schema: Schema | Mapping[str, str | type | DataType],
    *,
    time: str | None = None,
    format: str | None = None,
    retention: str | None = None,
    flush_age: str | None = None,
    promote: bool = False,
    history: str = HISTORY,
    cluster_by: Sequence[str] = (),
    upkeep: bool = True,
    scope: str = SHARED,
    key: str | Sequence[str] = (),
    flush_rows: int | None = None,
    compaction: Mapping[str, int] | None = None,
    is_staged: bool = False,
    **series: Any,
) -> TableInfo:
    """Make a table as ``Lake.create_table`` says; ``series`` is what it tells of buckets, entities and coverage.

    One that ``is_staged`` has a name that only such tables have, until it takes its own.
    """
    if not is_staged:
        refuse_staged(name)
    columns = schema if isinstance(schema, Schema) else Schema.of(schema)
    named = time_of(columns, time)
    age = flush_age or (USERS_FLUSH_AGE if scope == USER else FLUSH_AGE)
    settings = TableSettings(
        time=named,
        format=known_format(format or catalog.layout.default_format),
        retention=retention,
        flush_age=age,
        promote=promote,
        history=history,
        cluster_by=cluster_columns(columns, cluster_by),
        upkeep=upkeep,
        scope=_known_scope(scope),
        flush_rows=_positive("flush_rows", flush_rows),
        compaction=_limits(compaction or {}, key),
        key=_key_columns(catalog, columns, key, series),
        series=_series_settings(columns, named, **series),
    )
    for duration in (retention, history, None if age == FLUSH_OFF else age):
        if duration is not None:
            duration_us(duration)
    if retention is not None and named is None:
        raise InvalidInputError("a retention needs a time column", table=name, kind="no_time")
    if settings.is_segmented:
        settings = _segmented(name, settings, format)
    return catalog.create_table(name, columns, settings.to_json())


def _segmented(name: str, settings: TableSettings, format: str | None) -> TableSettings:
    """Return the settings of a table whose extents are segments, which others read as Parquet."""
    if format not in (None, SEGMENT_FORMAT):
        raise InvalidInputError(
            f"the segments of this table are {SEGMENT_FORMAT} files", format=format, table=name, kind="bad_format"
        )
    scope_folder(*parse_table_name(name))  # or the name is refused
    return replace(settings, format=SEGMENT_FORMAT)


def _known_scope(scope: str) -> str:
    if scope not in SCOPES:
        raise InvalidInputError(f"the scope of a table is one of {', '.join(SCOPES)}", found=scope, kind="bad_scope")
    return scope


def _positive(name: str, value: int | None) -> int | None:
    if value is not None and (type(value) is not int or value < 1):
        raise InvalidInputError(f"{name} is a whole number above 0", found=value, kind="bad_setting")
    return value


def _limits(given: Mapping[str, int], key: str | Sequence[str]) -> dict[str, int]:
    """Check the limits of uniting the last segments; 0 rows are a way to say never."""
    if given and not key:
        raise InvalidInputError("limits of compaction are for a table with a key", kind="bad_setting")
    for name, value in given.items():
        if name not in SUFFIX:
            raise InvalidInputError(f"{name!r} is no limit of compaction", known=", ".join(SUFFIX), kind="bad_setting")
        least = 0 if name == "max_rows" else 2
        if type(value) is not int or value < least:
            raise InvalidInputError(f"{name} is a whole number of at least {least}", found=value, kind="bad_setting")
    return dict(given)


def _key_columns(
    catalog: Catalog, schema: Schema, names: str | Sequence[str], series: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return the columns that name a row, checked."""
    key = (names,) if isinstance(names, str) else tuple(names)
    if not key:
        return ()
    if not catalog.layout.keeps_hot_rows:
        raise InvalidInputError(
            "a table of a transaction log has no key: its layout knows no versions of rows", kind="no_keys_here"
        )
    if len(set(key)) != len(key):
        raise SchemaError("a key names a column once", columns=", ".join(key))
    for name in key:
        if schema[name].type.kind not in KEY_KINDS:
            raise SchemaError(
                f"a key column is one of {', '.join(KEY_KINDS)}", column=name, type=schema[name].type, kind="bad_key"
            )
    if taken := [name for name in HIDDEN_IDS if name in schema]:
        raise SchemaError("a table with a key gives this column itself", column=taken[0], kind="bad_key")
    if series.get("coverage") == "exclusive":
        raise InvalidInputError(
            "rows of a table with a key change places: its coverage is tracked, and never exclusive", kind="bad_key"
        )
    return key


def cluster_columns(schema: Schema, names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that compaction sorts by; dynamic values and vectors have no order."""
    for name in [names] if isinstance(names, str) else names:
        if schema[name].type.kind in ("dynamic", "vector"):
            raise SchemaError("rows cannot be sorted by this column", column=name, type=schema[name].type)
    return (names,) if isinstance(names, str) else tuple(names)


def known_format(name: str) -> str:
    if name not in FORMATS:
        raise InvalidInputError(f"unknown format {name!r}", known=", ".join(FORMATS), kind="unknown_format")
    return name


def time_of(schema: Schema, name: str | None) -> str | None:
    """Return the time column of a new table: the one that is named, or else its only timestamp."""
    if name is not None:
        if schema[name].type != DataType("timestamp"):
            raise SchemaError("the time column must be a timestamp", column=name, type=schema[name].type)
        return name
    times = [column.name for column in schema if column.type == DataType("timestamp")]
    if len(times) > 1:
        raise SchemaError("several timestamps: name the time column with time=", columns=", ".join(times))
    return times[0] if times else None


def _series_settings(
    schema: Schema,
    time: str | None,
    *,
    bucket: Any = None,
    entity: Any = (),
    coverage: Any = None,
    index: Any = None,
    timezone: Any = None,
    schedule: Any = None,
) -> dict[str, Any]:
    """Check what a new table is told of its time index, and give it as the catalog keeps it."""
    names = [entity] if isinstance(entity, str) else list(entity)
    mode = coverage or ("off" if bucket is None else "track")
    if mode not in MODES:
        raise InvalidInputError(f"coverage is one of {', '.join(MODES)}", found=coverage, kind="bad_coverage_mode")
    zone = {} if timezone is None else {"timezone": schedules.check_zone(timezone)}
    if bucket is None:
        if mode != "off" or names or index is not None or schedule is not None:
            raise InvalidInputError("coverage needs a bucket, such as bucket='1m'", kind="bad_bucket")
        return zone
    parsed = buckets.parse_bucket(bucket)
    column = index or time
    if column is None:
        raise InvalidInputError("a bucket needs a time column, or index= and a column of whole numbers")
    kind = schema[column].type.kind
    if (
        schema[column].type.logical
        or (kind == "timestamp") != parsed.is_time
        or kind not in ("timestamp", "int", "long")
    ):
        raise SchemaError("the bucket does not fit the index", column=column, type=kind, bucket=bucket)
    _check_entity(schema, names, column)
    if schedule is not None:
        schedules.parse_schedule(schedule)
    told = {"bucket": bucket, "coverage": mode, "entity": names or None, "index": index, "schedule": schedule}
    return {name: value for name, value in told.items() if value is not None} | zone


def _check_entity(schema: Schema, names: Sequence[str], column: str) -> None:
    if len(set(names)) != len(names) or column in names:
        raise SchemaError("entity columns must be distinct, and not the index", columns=", ".join(names))
    for name in names:
        if schema[name].type.logical or schema[name].type.kind not in ENTITY_KINDS:
            raise SchemaError(
                f"an entity column is one of {', '.join(ENTITY_KINDS)}", column=name, type=schema[name].type
            )
        if name in RESERVED:
            raise SchemaError("an entity column cannot be named like an answer's", column=name)

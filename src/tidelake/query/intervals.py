"""Turn intervals of a result into a form that Arrow can hold.

Of what is shorter than a day Arrow keeps nanoseconds in 64 bits, which are 292 years; DuckDB counts microseconds and
does not look whether they fit. Whole days of what is longer are given as days. An interval of days and less that is
longer than 64 bits of microseconds is an error, as it is in Spark. It does not change other values.
"""

from __future__ import annotations

from typing import Any

_HOURS = 2_562_000  # of which 64 bits hold the nanoseconds
_TOO_LONG = "an interval is longer than 64 bits of microseconds"


def with_long_intervals(found: Any) -> Any:
    """Return a relation whose intervals Arrow can hold; the same one if it has none."""
    if not any("INTERVAL" in str(kind) for kind in found.types):
        return found
    columns = []
    for name, kind in zip(found.columns, found.types, strict=True):
        quoted = '"' + name.replace('"', '""') + '"'
        columns.append(f"{_held(quoted, kind)} AS {quoted}" if "INTERVAL" in str(kind) else quoted)
    return found.project(", ".join(columns))


def _held(value: str, kind: Any, depth: int = 0) -> str:
    """Write a value of a type that has intervals somewhere."""
    if "INTERVAL" not in str(kind):
        return value
    each = f"tide_{depth}"
    match kind.id:
        case "interval":
            return f"list_transform([{value}], lambda {each}: {_bounded(each)})[1]"
        case "list" | "array":
            ((_, inner),) = [child for child in kind.children if child[0] == "child"]
            return f"list_transform({value}, lambda {each}: {_held(each, inner, depth + 1)})"
        case "map":
            inner = dict(kind.children)
            key, item = (_held(f"{each}.{part}", inner[part], depth + 1) for part in ("key", "value"))
            entries = f"list_transform(map_entries({value}), lambda {each}: {{'key': {key}, 'value': {item}}})"
            return f"map_from_entries({entries})"
        case "struct":
            parts = (
                "'" + name.replace("'", "''") + "': " + _held(f"{each}['{name}']", inner, depth + 1)
                for name, inner in kind.children
            )
            body = f"CASE WHEN {each} IS NOT NULL THEN {{{', '.join(parts)}}} END"
            return f"list_transform([{value}], lambda {each}: {body})[1]"
        case _:
            return value


def _bounded(value: str) -> str:
    hours = f"date_part('hour', {value})"
    days = f"({hours} // 24)"
    micros = (
        f"(date_part('day', {value})::HUGEINT * 86400000000 + {hours}::HUGEINT * 3600000000"
        f" + date_part('minute', {value}) * 60000000 + date_part('microsecond', {value}))"
    )
    shorter = f"{value} - to_hours({days} * 24) + to_days(CAST({days} AS INTEGER))"
    return (
        f"CASE WHEN {micros} NOT BETWEEN {-(2**63)} AND {2**63 - 1} THEN error('{_TOO_LONG}')"
        f" WHEN abs({hours}) > {_HOURS} THEN {shorter} ELSE {value} END"
    )

"""Define the properties of a table in Spark's SQL: the arguments of ``Lake.create_table``, as texts.

What ``SHOW TBLPROPERTIES`` shows, ``CREATE TABLE … TBLPROPERTIES`` takes. A list is written with commas, a truth as
``true`` or ``false``. It does not check values: who makes tables does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidelake.errors import InvalidInputError
from tidelake.model.lexer import did_you_mean

COMMENT = "comment"
SOURCE = "tidelake"
# What Spark itself adds to the properties of a new table.
_OF_SPARK = frozenset({"owner", "external", "is_managed_location", "table_type"})
_OPTION = "option."
_CLUSTERED = re.compile(r"cluster_by\((.*)\)")


def _list_of(text: str) -> list[str]:
    return [part for each in text.split(",") if (part := each.strip())]


def _truth_of(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidInputError("a property is true or false", got=text, kind="bad_property")
    return text.lower() == "true"


def _bucket_of(text: str) -> str | int:
    return int(text) if text.isdecimal() else text


_READ: dict[str, Callable[[str], Any]] = {
    "time": str, "format": str, "retention": str, "flush_age": str, "promote": _truth_of, "history": str,
    "cluster_by": _list_of, "upkeep": _truth_of, "scope": str, "key": _list_of, "bucket": _bucket_of,
    "entity": _list_of, "coverage": str, "index": str, "timezone": str, "schedule": str, COMMENT: str,
}  # fmt: skip


def read_properties(given: Mapping[str, str], default_source: str | None = None) -> dict[str, Any]:
    """Return what a new table is told; InvalidInputError for a property that is not known.

    ``USING`` must name this source. Where nobody says it, Spark's ``saveAsTable`` names the session's default source.
    """
    found: dict[str, Any] = {}
    for name, text in given.items():
        if name == "provider":
            if text.lower() not in (SOURCE, default_source):
                raise InvalidInputError(
                    f"tables of a lake are USING {SOURCE}; the property format chooses between tlm and parquet",
                    using=text, kind="bad_property",
                )  # fmt: skip
        elif name not in _OF_SPARK and not name.startswith(_OPTION):
            found[name] = read_property(name, text)
    return found


def read_property(name: str, text: str) -> Any:
    """Return the value of one property."""
    if name == "location":
        raise InvalidInputError("the lake decides where a table lies: leave LOCATION out", kind="bad_property")
    if name not in _READ:
        close = did_you_mean(name, list(_READ)) or f"; known are {', '.join(sorted(_READ))}"
        raise InvalidInputError(f"there is no table property {name!r}{close}", kind="unknown_property")
    return _READ[name](text)


def shown_properties(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the properties that make a table of these settings."""
    return {name: _text_of(settings[name]) for name in _READ if settings.get(name) not in (None, [], ())}


def clustering_of(partitioning: Sequence[str]) -> list[str]:
    """Return the columns of ``CLUSTER BY``; InvalidInputError for partitions, which tables do not have."""
    found: list[str] = []
    for each in partitioning:
        match = _CLUSTERED.fullmatch(each)
        if match is None:
            raise InvalidInputError(
                "a table is not partitioned: its extents are cut and pruned by time; leave PARTITIONED BY out, and "
                "CLUSTER BY columns that are asked for",
                partitioning=each, kind="bad_property",
            )  # fmt: skip
        found += [name.strip().strip("`") for name in match[1].split(",")]
    return found


def _text_of(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, list | tuple) else str(value)

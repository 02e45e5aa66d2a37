"""Find the lake of a catalog, and the table that an identifier of Spark's names.

A catalog's options are those of the data source (``lake``, ``objects``, …, ``user``). Where they hold a secret, the
session's settings have a token in their place, which only the process that set the catalog can resolve. It does not
read tables.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from tidelake.catalog.protocol import DEFAULT_NAMESPACE
from tidelake.errors import InvalidInputError, NotFoundError, redacted
from tidelake.handle.lake_handle import LakeHandle
from tidelake.handle.opening import LOG_SCHEME
from tidelake.handle.table_handle import TableHandle
from tidelake.spark.options import LAKE
from tidelake.spark.places import Place

TOKEN = "place"
USER = "user"  # the option of a catalog that says whose tables are meant
SESSION = "session"  # which session a catalog belongs to, where several have one of the same name
METADATA = ("history", "extents", "coverage", "gaps")  # tables that tell of a table

_HELD: dict[str, Place] = {}  # places with secrets, by token


def options_of(place: Place) -> dict[str, str]:
    """Return the options of a catalog, which everybody who sees the session's settings may see."""
    if redacted(place.lake) == place.lake and place.secret_key is None and place.access_key is None:
        return place.options()
    token = hashlib.sha256("\x1f".join(place.options().values()).encode()).hexdigest()[:16]
    _HELD[token] = place
    return {"lake": redacted(place.lake), TOKEN: token}


def place_of(question: Mapping[str, Any]) -> Place:
    """Return the place of a catalog's lake."""
    options = {name.lower(): value for name, value in question["catalog"].items()}
    token = options.pop(TOKEN, None)
    options.pop(USER, None)
    options.pop(SESSION, None)
    if token is not None:
        if token not in _HELD:
            raise InvalidInputError("this catalog's lake is known to the process that registered it alone")
        return _HELD[token]
    known = {name.lower() for name in LAKE}
    for name in options:
        if name not in known:
            raise InvalidInputError(
                f"a catalog has no option {name!r}", known=", ".join((*LAKE, USER)), kind="unknown_option"
            )
    return Place.of(options)


def lake_of(question: Mapping[str, Any]) -> LakeHandle:
    """Return a catalog's lake, open; a log that has no table yet is one, too."""
    place = place_of(question)
    return place.open(create=place.lake.startswith(LOG_SCHEME))


def user_of(question: Mapping[str, Any]) -> str | None:
    """Return the user whose tables are meant, where each user has one."""
    return next((value for name, value in question["catalog"].items() if name.lower() == USER), None)


def table_of(question: Mapping[str, Any], name: str, **past: Any) -> TableHandle:
    """Return a table of a catalog's lake as its user sees it, perhaps at an older snapshot."""
    return TableHandle.seen_by(lake_of(question), name, user_of(question), **past)


def table_name(question: Mapping[str, Any]) -> str:
    """Return the name of the table that an identifier means; without a namespace it is in ``default``."""
    namespace: Sequence[str] = question["namespace"]
    if len(namespace) > 1:
        raise NotFoundError("no such table", table=".".join([*namespace, question["table"]]), kind="no_table")
    return f"{namespace[0] if namespace else DEFAULT_NAMESPACE}.{question['table']}"


def told_name(question: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the table and what is told of it, ``obs.logs`` and ``history``; None if an identifier is no such thing."""
    namespace, what = question["namespace"], question["table"].lower()
    if what not in METADATA or not 1 <= len(namespace) <= 2:
        return None
    return ".".join(namespace if len(namespace) == 2 else [DEFAULT_NAMESPACE, *namespace]), what

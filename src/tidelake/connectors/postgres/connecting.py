"""Connect to PostgreSQL, and say in our errors who can help when that fails.

It does not know what is asked there.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from tidelake.connectors.definition import expanded
from tidelake.connectors.failures import plain, raised_as_ours, refused, unreachable
from tidelake.errors import InvalidInputError, TidelakeError

CONNECT_S = 10
# What every value's text depends on.
SESSION = (
    "SET datestyle = 'ISO'; SET timezone = 'UTC'; SET intervalstyle = 'postgres'; SET bytea_output = 'hex'; "
    "SET extra_float_digits = 1; SET client_encoding = 'UTF8'; SET lock_timeout = '30s'"
)
# Classes of SQLSTATE that somebody has to do something about: authorisation, no such database, privileges, names, and
# what a server is not configured for.
_CONFIG = ("28", "3D", "42", "55", "0A", "22023")
# Of those, what passes: a slot that a connection still holds, a lock that was waited for too long.
_PASSES = ("55006", "55P03")
_REFUSED = ("authentication failed", "no password supplied", "does not exist", "no pg_hba.conf entry", "not permitted")


def told_apart() -> AbstractContextManager[None]:
    """Raise what psycopg raises as an error of ours: of the settings, or of a source that may answer later."""
    return raised_as_ours(psycopg.Error, _error_of)


def connect(url: str, **more: Any) -> psycopg.Connection[Any]:
    """Open a connection, outside of transactions; variables that the address names are looked up now."""
    with told_apart():
        try:
            words = conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            raise InvalidInputError("not an address of PostgreSQL", kind="bad_url") from error
        given = {name: expanded(str(value)) for name, value in words.items() if value is not None}
        known: dict[str, Any] = {"connect_timeout": CONNECT_S, "application_name": "tidelake", **given, **more}
        opened: psycopg.Connection[Any] = psycopg.connect(**known, autocommit=True)
        if "replication" not in more:
            opened.execute(SESSION)
        return opened


def _error_of(error: psycopg.Error) -> TidelakeError:
    state, words = error.sqlstate or "", plain(error)
    if isinstance(error, psycopg.OperationalError) and not state and any(each in words for each in _REFUSED):
        return refused(f"{words}: check its address and its credentials", "the source refuses the connection")
    if state.startswith(_CONFIG) and state not in _PASSES:
        return refused(words, state=state)
    return unreachable(words)

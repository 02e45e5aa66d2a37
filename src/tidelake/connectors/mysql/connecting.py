"""Connect to MySQL or MariaDB, and say in our errors who can help when that fails.

It does not know what is asked there.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import pymysql
from pymysql.constants import ER

from tidelake.connectors.definition import expanded
from tidelake.connectors.failures import raised_as_ours, refused, unreachable
from tidelake.errors import InvalidInputError, TidelakeError

CONNECT_S = 10
READ_S = 600  # between two packets of an answer
PORT = 3306
# What every value's text depends on, and what a copy must not wait for.
SESSION = (
    "SET NAMES utf8mb4",
    "SET time_zone = '+00:00'",
    "SET SESSION sql_mode = ''",
    "SET SESSION lock_wait_timeout = 30",
    "SET SESSION net_write_timeout = 600",
)
_OPTIONS = {"ssl_ca": str, "ssl_cert": str, "ssl_key": str, "ssl_verify_cert": bool, "ssl_verify_identity": bool}
# What somebody has to do something about: credentials, privileges, names, settings, and statements.
_CONFIG = {
    ER.ACCESS_DENIED_ERROR, ER.DBACCESS_DENIED_ERROR, ER.BAD_DB_ERROR, ER.NO_SUCH_TABLE, ER.TABLEACCESS_DENIED_ERROR,
    ER.SPECIFIC_ACCESS_DENIED_ERROR, ER.COLUMNACCESS_DENIED_ERROR, ER.PARSE_ERROR, ER.HOST_NOT_PRIVILEGED,
    ER.NO_BINARY_LOGGING, 1698, 1820, 1862, 2059, 3118, 4151,
}  # fmt: skip


def told_apart() -> AbstractContextManager[None]:
    """Raise what PyMySQL raises as an error of ours: of the settings, or of a source that may answer later."""
    return raised_as_ours(pymysql.MySQLError, error_of)


def settings_of(url: str) -> dict[str, Any]:
    """Return what an address says, as PyMySQL takes it; variables that it names are looked up now."""
    try:
        parts = urlsplit(url)
        port = parts.port or PORT
    except ValueError as error:
        raise InvalidInputError("not an address of MySQL", kind="bad_url") from error
    found: dict[str, Any] = {
        "host": parts.hostname or "127.0.0.1",
        "port": port,
        "user": expanded(unquote(parts.username or "")),
        "password": expanded(unquote(parts.password or "")),
        "charset": "utf8mb4",
        "connect_timeout": CONNECT_S,
        "read_timeout": READ_S,
        "program_name": "tidelake",
    }
    for name, value in parse_qsl(parts.query):
        if name not in _OPTIONS:
            raise InvalidInputError(f"the address may say {', '.join(_OPTIONS)}", found=name, kind="bad_url")
        found[name] = value.lower() in ("1", "true", "yes") if _OPTIONS[name] is bool else expanded(value)
    return found


def database_of(url: str) -> str | None:
    """Return the database that an address names, if any."""
    return unquote(urlsplit(url).path.strip("/")) or None


def connect(url: str, **more: Any) -> pymysql.Connection[Any]:
    """Open a connection that commits every statement."""
    with told_apart():
        opened: pymysql.Connection[Any] = pymysql.connect(**{**settings_of(url), "autocommit": True, **more})
        with opened.cursor() as cursor:
            for statement in SESSION:
                cursor.execute(statement)
        return opened


def error_of(error: pymysql.MySQLError) -> TidelakeError:
    """Return an error of ours."""
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    words = error.args[-1] if error.args else error
    return refused(words, code=code) if code in _CONFIG else unreachable(words, code=code)

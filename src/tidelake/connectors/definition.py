"""Say what a source is: where, which tables, into which namespace, how; as a value that is kept in the lake.

A secret is never part of it. An address names the variables of the environment that have them,
``postgresql://app:${PGPASSWORD}@host/crm``, and whoever runs the source needs those. It does not keep definitions: see
``registry``; nor does it connect.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, urlsplit

import orjson

from tidelake.catalog.protocol import parse_table_name
from tidelake.errors import CorruptError, InvalidInputError

State = Literal["running", "paused", "disabled", "stopped"]
STATES = ("running", "paused", "disabled", "stopped")
MODES = ("log", "upsert")
# How addresses begin, and what answers there.
KINDS = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
    "mongodb": "mongo",
    "mongodb+srv": "mongo",
    "prometheus": "prometheus",
    "prometheus+https": "prometheus",
    "sentry": "sentry",
    "sentry+http": "sentry",
    "http": "http",
    "https": "http",
}
# What may be told of each kind beside its address and its tables.
_PULLED_OPTIONS = ("schedule", "delay", "headers")
OPTIONS = {
    "postgres": ("publication", "slot"),
    "mysql": ("server_id",),
    "mongo": ("via",),
    "prometheus": (*_PULLED_OPTIONS, "selector"),
    "sentry": (*_PULLED_OPTIONS, "token", "project", "query", "environment", "fields"),
    "http": (*_PULLED_OPTIONS, "rows", "time", "cursor", "cursor_parameter"),
}
SYSTEM_COLUMNS = PK, OP, LSN, EVENT_AT = ("_tide_pk", "_tide_op", "_tide_lsn", "_tide_event_at")

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SECRET_WORD = re.compile(r"(?i)pass(word|wd)?|secret|token|api[-_]?key|authorization|cookie|credential|signature")


@dataclass(frozen=True, slots=True)
class SourceDefinition:
    """A source as the lake keeps it. Tables are the source's names and the lake's."""

    name: str
    kind: str
    url: str
    tables: Mapping[str, str]
    mode: str = "log"
    options: Mapping[str, Any] = field(default_factory=dict)
    state: State = "running"
    reason: str | None = None  # why it does not run, if somebody or something stopped it
    id: str = ""  # in the names of what it makes at the source
    epoch: int = 1  # rises when all tables are read again, so that what is read then is the newest
    created_us: int = 0

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidInputError(
                "a source's name has letters, digits, _ and -, at most 64", name=ascii(self.name[:80]), kind="bad_name"
            )
        if self.mode not in MODES:
            raise InvalidInputError(f"the mode is one of {', '.join(MODES)}", found=self.mode, kind="bad_mode")
        if self.state not in STATES or self.epoch < 1:
            raise InvalidInputError("not the state of a source", state=self.state, kind="bad_state")
        refuse_secrets(self.url, self.options)

    def to_json(self) -> bytes:
        """Return the stored shape."""
        return orjson.dumps(asdict(self), option=orjson.OPT_INDENT_2)

    @classmethod
    def from_json(cls, data: bytes, name: str) -> SourceDefinition:
        """Read the stored shape; CorruptError if it is none, or another's."""
        try:
            body: dict[str, Any] = orjson.loads(data)
            known = {each.name for each in fields(cls)}
            found = cls(**{key: value for key, value in body.items() if key in known})
            if found.name != name:
                raise ValueError("it is another's")
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptError("a source's definition cannot be read", source=name, kind="bad_source") from error
        return found

    def stopped(self, state: State, reason: str) -> SourceDefinition:
        """Return the source with why it does not run."""
        return replace(self, state=state, reason=reason)

    def stream_of(self, table: str) -> str:
        """Name the stream of changes that one table comes from; reading all anew begins another."""
        return f"sync:{self.name}:{self.id}:{self.epoch}:{table}"


def kind_of(url: str) -> str:
    """Return what answers at an address."""
    scheme = url.partition("://")[0].lower() if "://" in url else ""
    if scheme not in KINDS:
        raise InvalidInputError(
            f"not the address of a source: it begins with {', '.join(f'{each}://' for each in KINDS)}", kind="bad_url"
        )
    return KINDS[scheme]


def check_options(kind: str, options: Mapping[str, Any]) -> None:
    """Raise InvalidInputError for an option that this kind of source has not: it would do nothing."""
    if unknown := sorted(options.keys() - set(OPTIONS[kind])):
        raise InvalidInputError(
            f"such a source has no option {unknown[0]}: it has {', '.join(OPTIONS[kind])}", source_kind=kind,
            kind="bad_option",
        )  # fmt: skip


def expanded(text: str, environment: Mapping[str, str] | None = None, *, quoting: bool = False) -> str:
    """Return a text with every ``${NAME}`` replaced by the variable's value; InvalidInputError if one is not set.

    With ``quoting``, values are percent-encoded: for an address that is taken apart afterwards.
    """
    values = os.environ if environment is None else environment

    def value(found: re.Match[str]) -> str:
        if found[1] not in values:
            raise InvalidInputError(
                "a variable that the source names is not set", variable=found[1], kind="missing_variable"
            )
        return quote(values[found[1]], safe="") if quoting else values[found[1]]

    return _VARIABLE.sub(value, text)


def refuse_secrets(url: str, options: Mapping[str, Any]) -> None:
    """Raise InvalidInputError for a secret that is written out: it would be kept where everybody can read it."""
    parts = urlsplit(url)
    found = [("password", parts.password)] if parts.password else []
    found += [(name, value) for name, value in parse_qsl(parts.query) if _SECRET_WORD.search(name)]
    headers = options.get("headers")
    for words in (options, headers if isinstance(headers, Mapping) else {}):
        found += [(str(name), str(value)) for name, value in words.items() if _SECRET_WORD.search(str(name))]
    for name, value in found:
        if not _VARIABLE.search(value):
            raise InvalidInputError(
                f"the {name.lower()} is written out: name a variable of the environment instead, as in "
                "postgresql://user:${PGPASSWORD}@host/database",
                kind="secret_in_clear",
            )


def target_tables(tables: Sequence[str] | Mapping[str, str], into: str | None) -> dict[str, str]:
    """Return the lake's name for each table of a source; two that would share one are refused."""
    if isinstance(tables, str):
        tables = [tables]
    if isinstance(tables, Mapping):
        found = {source: ".".join(parse_table_name(target)) for source, target in tables.items()}
    else:
        if into is None:
            raise InvalidInputError("name the namespace for the tables: into='crm'", kind="no_namespace")
        found = {each: ".".join(parse_table_name(f"{into}.{each.rpartition('.')[2]}")) for each in tables}
    for source, target in found.items():
        if twins := [other for other, its in found.items() if its == target and other != source]:
            raise InvalidInputError(
                "two tables would become one: name each, as in {'public.orders': 'crm.orders'}",
                tables=f"{source}, {twins[0]}", target=target, kind="same_target",
            )  # fmt: skip
    return found

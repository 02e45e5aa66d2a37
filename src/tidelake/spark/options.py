"""Define the options of reads, writes and streams: one that is not known is refused, and never passed over.

Names are found whatever their case, as Spark's are. For what is here, the names that Delta Lake's users type are taken,
too. What Spark itself adds to a source's options is left out. It does not open what the options name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from tidelake.errors import InvalidInputError
from tidelake.model.lexer import did_you_mean

Role: TypeAlias = Literal["any", "batch", "batch write", "stream read", "stream write"]

OWN_PLAN = "tidelakeownplan"  # the option of a scan that shares its plan with no other
LIMIT = "tidelakelimit"  # that of a scan of which so many rows are enough
FIRST = "tidelakefirst"  # that of a scan of which the newest or the oldest rows are enough: "newest 10"
PLAN = "tidelakeplan"  # a name under which the figures of a scan's plan are kept
KEYS = "tidelakekeys"  # what a query uses of VARIANT columns, where it does not need them whole
CHANGE = "tidelakechange"  # that of a write which takes single rows away: what does so, and of which snapshot

LAKE = ("lake", "objects", "endpoint", "accessKey", "secretKey", "region")
_TABLE = (*LAKE, "table", "path", "user")
_WRITE = ("key", "extentBytes", "blockRows")
REPLACING = ("start", "end", "replaceWhere")  # which rows an overwrite replaces
BUCKETED = ("partitionOverwriteMode", "overwriteBucket")  # that it replaces the buckets that rows are in
BATCH = ("txnAppId", "txnVersion")  # which batch of which stream a write is, of those that happen once
# A table that SQL created has one set of options for its reads and its writes.
KNOWN: dict[Role, tuple[str, ...]] = {
    "batch": (*_TABLE, "users", "asOf", "snapshot", "where", "splitBytes", *_WRITE),
    "batch write": (*_TABLE, "asOf", "snapshot", "where", "splitBytes", *_WRITE, *REPLACING, *BUCKETED, *BATCH),
    "stream read": (*_TABLE, "where", "splitBytes", "startingSnapshot", "maxExtentsPerTrigger", "changes"),
    "stream write": (*_TABLE, *_WRITE[1:], "checkpointLocation"),
}
KNOWN["any"] = tuple(dict.fromkeys(name for names in KNOWN.values() for name in names))  # who asks is not told
# What Spark adds: to every table of its catalog, and to a stream that has a name.
_INTERNAL = (OWN_PLAN, LIMIT, FIRST, PLAN, KEYS, CHANGE)
_SPARKS_OWN = frozenset({"serialization.format", "queryname", *_INTERNAL})
_CREATED = "option."  # before each option, where SQL creates a table: what has no such twin is one of its properties
_ELSEWHERE = {
    "startingsnapshot": "it is for a stream: a batch reads one snapshot, chosen with snapshot or asOf",
    "startingversion": "it is for a stream: a batch reads one snapshot, chosen with snapshot or asOf",
    "snapshot": "a stream gives what comes: begin it after a snapshot with startingSnapshot",
    "versionasof": "a stream gives what comes: begin it after a snapshot with startingSnapshot",
    "asof": "a stream gives what comes: begin it after a snapshot with startingSnapshot",
    "timestampasof": "a stream gives what comes: begin it after a snapshot with startingSnapshot",
    "startingtimestamp": "begin after a snapshot with startingSnapshot; the table's history has their times",
    "key": "the batches of a stream are known by its checkpoint, and need no key",
    "changes": "it is for a stream: a batch reads the rows of one snapshot",
    "overwriteschema": "the schema of a table only widens",
    "replacewhere": "it is for a batch that is written with mode overwrite",
    "start": "it is for a batch that is written with mode overwrite; a read takes a condition, with where",
    "end": "it is for a batch that is written with mode overwrite; a read takes a condition, with where",
    "partitionoverwritemode": "it is for a batch that is written with mode overwrite",
    "overwritebucket": "it is for a batch that is written with mode overwrite",
    "users": "it is for a batch that is read; a stream and a write are of one user, chosen with user",
    "paths": "one table is read at a time",
}


@dataclass(frozen=True, slots=True)
class _Alias:
    """Another name of an option, and what its value is under ours."""

    name: str
    value: Callable[[str], str] = str


def _before(version: str) -> str:
    """Return the snapshot after which a stream begins, of the first whose rows Delta Lake would give."""
    if not version.isdecimal():
        raise InvalidInputError("startingVersion is a snapshot's number", got=version, kind="bad_option")
    return str(max(int(version) - 1, 0))


_ALIASES: dict[Role, dict[str, _Alias]] = {
    "batch": {"versionAsOf": _Alias("snapshot"), "timestampAsOf": _Alias("asof")},
    "stream read": {
        "startingVersion": _Alias("startingsnapshot", _before),
        "maxFilesPerTrigger": _Alias("maxextentspertrigger"),
    },
    "stream write": {},
}
_ALIASES["batch write"] = _ALIASES["batch"]
_ALIASES["any"] = {**_ALIASES["batch"], **_ALIASES["stream read"]}


def known_options(options: Mapping[str, str], role: Role) -> dict[str, str]:
    """Return options under our names, in small letters; InvalidInputError for one that is not known."""
    names = {name.lower() for name in KNOWN[role]}
    aliases = {name.lower(): alias for name, alias in _ALIASES[role].items()}
    found: dict[str, str] = {}
    for given, text in _given(options).items():
        name, value = given.lower(), text
        if name == "mergeschema" and role != "stream read":
            _check_merging(value)
            continue
        if (alias := aliases.get(name)) is not None:
            name, value = alias.name, alias.value(value)
        elif name in _SPARKS_OWN and name not in names:
            if name in _INTERNAL:
                found[name] = value
            continue
        if name not in names:
            raise _unknown(given, role)
        if found.setdefault(name, value) != value:
            raise InvalidInputError(f"option {given} is given twice, under two names", kind="bad_option")
    return found


def _given(options: Mapping[str, str]) -> Mapping[str, str]:
    """Return what somebody wrote as an option."""
    created = {name.lower()[len(_CREATED) :] for name in options if name.lower().startswith(_CREATED)}
    return {name: value for name, value in options.items() if name.lower() in created} if created else options


def option(options: Mapping[str, str], name: str) -> str | None:
    """Read an option, whatever its case: Spark makes all names small."""
    return options.get(name, options.get(name.lower()))


def number_of(options: Mapping[str, str], name: str, default: int | None, *, least: int = 1) -> int | None:
    """Read an option that is a whole number."""
    text = option(options, name)
    if text is None:
        return default
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if number < least:
        raise InvalidInputError(f"option {name} is a whole number from {least} on", got=text, kind="bad_option")
    return number


def _check_merging(value: str) -> None:
    """Take what is always so: columns that the table lacks are added."""
    if value.lower() != "true":
        raise InvalidInputError(
            "a write adds the columns that the table lacks: select those that it has", mergeSchema=value
        )


def _unknown(given: str, role: Role) -> InvalidInputError:
    told = _ELSEWHERE.get(given.lower())
    if told is None:
        close = did_you_mean(given, [*KNOWN[role], *_ALIASES[role]]) or f"; known are {', '.join(sorted(KNOWN[role]))}"
        return InvalidInputError(f"there is no option {given!r}{close}", kind="unknown_option")
    return InvalidInputError(f"there is no option {given!r} here: {told}", kind="unknown_option")

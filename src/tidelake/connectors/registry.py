"""Keep sources in the lake's store, so that any node can run them, and what is known of how they do.

::

    _sources/{name}/definition-{number}.json     the source; the largest number counts, and making it is the change
    _sources/{name}/status.json                  what whoever runs it last saw: for people, nothing depends on it

A change is made on top of the number that was read: of two at once, one is made again on top of the other. It does not
run sources.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import orjson

from tidelake.catalog.protocol import now_us
from tidelake.connectors.definition import SourceDefinition
from tidelake.errors import AlreadyExistsError, ConflictError, NotFoundError
from tidelake.objects import ObjectStore
from tidelake.objects.keys import SOURCES_FOLDER, check_key

TRIES = 20  # each lost to another change of the same source
_KEY = re.compile(rf"{SOURCES_FOLDER}/([A-Za-z0-9_-]+)/definition-([0-9]{{10}})\.json")


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """What whoever runs a source last saw of it."""

    phase: str = "pending"  # snapshotting, streaming, waiting, failing
    rows: int = 0  # committed by this runner and those before it
    position: int | None = None  # how far the source's own records are read
    behind_bytes: int | None = None
    lag_us: int | None = None  # between the change that was read last and its commit here; 0 when all is read
    event_us: int | None = None  # when the newest change that was read was made
    seen_us: int | None = None  # when this was written
    error: str | None = None
    advanced: int | None = None  # how far the source was told that it may forget
    tables: dict[str, int] = field(default_factory=dict)  # rows, by table


def add(store: ObjectStore, definition: SourceDefinition) -> SourceDefinition:
    """Keep a new source; AlreadyExistsError if there is one of the name."""
    if any(name == definition.name for name in names(store)):
        raise AlreadyExistsError("there is a source of this name", source=definition.name, kind="source_exists")
    made = replace(definition, created_us=now_us())
    store.put_if_absent(_definition_key(made.name, 1), made.to_json())
    return made


def names(store: ObjectStore) -> list[str]:
    """Return the names of all sources."""
    found = (_KEY.fullmatch(meta.key) for meta in store.list(SOURCES_FOLDER))
    return sorted({each[1] for each in found if each is not None})


def read(store: ObjectStore, name: str) -> SourceDefinition:
    """Return a source; NotFoundError if there is none of the name."""
    return _newest(store, name)[1]


def change(store: ObjectStore, name: str, how: Callable[[SourceDefinition], SourceDefinition]) -> SourceDefinition:
    """Change a source; what it is changed from is what is kept at that time."""
    for _ in range(TRIES):
        number, held = _newest(store, name)
        wanted = how(held)
        if wanted == held:
            return held
        try:
            store.put_if_absent(_definition_key(name, number + 1), wanted.to_json())
        except AlreadyExistsError:
            continue
        store.delete([_definition_key(name, number)])
        return wanted
    raise ConflictError("others change the source too", source=name, kind="source_busy")


def remove(store: ObjectStore, name: str) -> SourceDefinition:
    """Forget a source; the tables that it filled stay."""
    found = read(store, name)
    store.delete([meta.key for meta in store.list(f"{SOURCES_FOLDER}/{name}")])
    return found


def status(store: ObjectStore, name: str) -> SourceStatus:
    """Return what was last seen of a source; nothing, if that cannot be read."""
    try:
        body: dict[str, Any] = orjson.loads(bytes(store.get(_status_key(name))))
        known = {each.name for each in fields(SourceStatus)}
        return SourceStatus(**{key: value for key, value in body.items() if key in known})
    except (NotFoundError, ValueError, TypeError):
        return SourceStatus()


def tell_status(store: ObjectStore, name: str, seen: SourceStatus) -> SourceStatus:
    """Keep what is seen of a source now."""
    told = replace(seen, seen_us=now_us())
    store.put(_status_key(name), orjson.dumps(asdict(told)))
    return told


def _newest(store: ObjectStore, name: str) -> tuple[int, SourceDefinition]:
    for _ in range(TRIES):
        keys = [meta.key for meta in store.list(check_key(f"{SOURCES_FOLDER}/{name}"))] if name else []
        numbers = [int(found[2]) for key in keys if (found := _KEY.fullmatch(key)) and found[1] == name]
        if not numbers:
            break
        try:
            data = bytes(store.get(_definition_key(name, max(numbers))))
        except NotFoundError:  # it was changed meanwhile
            continue
        return max(numbers), SourceDefinition.from_json(data, name)
    raise NotFoundError("no such source", source=name, kind="no_source")


def _definition_key(name: str, number: int) -> str:
    return check_key(f"{SOURCES_FOLDER}/{name}/definition-{number:010d}.json")


def _status_key(name: str) -> str:
    return check_key(f"{SOURCES_FOLDER}/{name}/status.json")

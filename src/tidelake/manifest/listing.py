"""List the manifests of a lake as rows: for people, for ``Lake.manifests``, and as the table ``system.manifest``.

Each row is held against its scope's head, so that it tells what is true now and not what was noted. A listing is
bounded: there may be millions of scopes. Those in a state other than ``in_sync`` are found by this node's index. It
does not load or change manifests.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pyarrow as pa

from tidelake.catalog.names import check_user
from tidelake.catalog.protocol import Catalog
from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.manifest.service import Look, ManifestService
from tidelake.manifest.states import NEVER_US, STATES, State
from tidelake.model.settings import USER
from tidelake.model.snapshot import Scope

SYSTEM_TABLE = "system.manifest"
LIMIT = 1_000  # rows, unless told otherwise
SYSTEM_LIMIT = 10_000  # rows of the table: each costs a look at a head
MOST_LOOKED_AT = 10_000  # scopes that a listing by state goes through where no index helps

SCHEMA = pa.schema(
    [
        pa.field("namespace", pa.string()),
        pa.field("table", pa.string()),
        pa.field("user", pa.string()),  # null for a shared table
        pa.field("state", pa.string()),
        pa.field("since", pa.timestamp("us", tz="UTC")),
        pa.field("version", pa.int64()),  # the sequence at which segments changed last; null if not known here
        pa.field("snapshot", pa.int64()),  # the newest
        pa.field("segments", pa.int64()),
        pa.field("rows", pa.int64()),
        pa.field("bytes", pa.int64()),
        pa.field("hot_rows", pa.int64()),
        pa.field("tier", pa.string()),  # the nearest that has a copy
        pa.field("last_refreshed", pa.timestamp("us", tz="UTC")),
        pa.field("attempts", pa.int64()),  # that failed in a row
        pa.field("next_try", pa.timestamp("us", tz="UTC")),
        pa.field("error", pa.string()),
    ]
)


def list_manifests(
    service: ManifestService,
    catalog: Catalog,
    *,
    table: str | None = None,
    user: str | None = None,
    state: str | None = None,
    limit: int = LIMIT,
    seen_by: str | None = None,
) -> pa.Table:
    """Return one row for each scope that has a manifest, as ``Lake.manifests`` says; or only those that a user sees."""
    if state is not None and state not in STATES:
        raise InvalidInputError(f"{state!r} is not a state: {', '.join(STATES)}", kind="bad_state")
    if limit < 0:
        raise InvalidInputError("a limit is not negative", limit=limit, kind="bad_limit")
    if user is not None and table is None:
        raise InvalidInputError("a user is one of a table's: name the table too", user=user[:40], kind="no_table")
    wanted: State | None = next((each for each in STATES if each == state), None)
    rows: list[dict[str, Any]] = []
    scopes = _scopes(service, catalog, table, user, wanted, limit)
    if seen_by is not None:
        scopes = _scopes_seen_by(service, catalog, table, seen_by)
    for scope in scopes if state is None else islice(scopes, max(MOST_LOOKED_AT, limit)):
        if len(rows) >= limit:
            break
        try:
            look = service.look(scope)
        except NotFoundError:
            continue  # dropped meanwhile
        if state is None or look.mark.state == state:
            rows.append(_row(look))
    return pa.Table.from_pylist(rows, SCHEMA)


def _scopes_seen_by(service: ManifestService, catalog: Catalog, table: str | None, user: str) -> Iterator[Scope]:
    """Yield the scopes that one user sees: their own, and those that are shared."""
    for info in catalog.tables() if table is None else [catalog.table(table)]:
        service.know(info)
        if service.is_segmented(info.scope):
            scope = Scope(info.id, user) if catalog.settings(info.id).get("scope") == USER else info.scope
            if catalog.head(scope).sequence:
                yield scope


def _scopes(
    service: ManifestService, catalog: Catalog, table: str | None, user: str | None, state: State | None, limit: int
) -> Iterator[Scope]:
    if table is None:
        yield from (scope for scope in service.scopes(state, limit) if _has_rows(service, scope))
        return
    info = catalog.table(table)
    service.know(info)
    if not service.is_segmented(info.scope):
        raise InvalidInputError("a table without users and without a key has no manifest", table=table, kind="shared")
    if user is not None:
        check_user(user)
        yield Scope(info.id, user)
        return
    yield from (scope for scope in catalog.scopes(info.id) if _has_rows(service, scope))


def _has_rows(service: ManifestService, scope: Scope) -> bool:
    """Whether a scope is one of rows: the shared scope of a table of users holds none."""
    return bool(scope.user) or not service.has_users(scope)


def _row(look: Look) -> dict[str, Any]:
    namespace, _, name = look.place.table.partition(".")
    totals, mark, held = look.head.totals, look.mark, look.held
    due_us = mark.due_us if mark.due_us is not None and mark.due_us < NEVER_US else None
    return {
        "namespace": namespace,
        "table": name,
        "user": look.place.scope.user or None,
        "state": mark.state,
        "since": mark.since_us,
        "version": None if held is None else held.version,
        "snapshot": look.head.sequence,
        "segments": totals.extents,
        "rows": totals.rows,
        "bytes": totals.bytes,
        "hot_rows": totals.hot_rows,
        "tier": look.tier,
        "last_refreshed": None if held is None else held.refreshed_us,
        "attempts": mark.attempts,
        "next_try": due_us,
        "error": mark.error,
    }

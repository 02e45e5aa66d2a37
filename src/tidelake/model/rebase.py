"""Rebase commits: say how a change that was built on one snapshot is made on top of another, or what forbids it.

1. an append rebases onto anything;
2. a commit that takes something away (compaction, flush, retention) needs all of it live, or is a ConflictError;
3. two widenings merge to the wider, dynamic being the widest; the later one takes the earlier one's column ids and a
   later version. A long column becomes real only on top of the very rows that were looked at, and rows with whole
   numbers that no double holds are not added to a column that is real by then: both are a ConflictError;
4. a claim on a time window that is held by now is an OverlapError;
5. what is pinned once, the identity of a table of one entity, is not pinned to anything else;
6. a commit that is exact, such as one whose keys were looked for and not found, holds on its base alone.

Ids and times are arguments. It does not read or write anything.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import replace
from operator import is_

from tidelake.errors import ConflictError, InvalidInputError, OverlapError, SchemaError, TidelakeError
from tidelake.model.exact import has_inexact_longs, stream_has_inexact_longs
from tidelake.model.schema import Schema, alike_but_for_case, becoming_real
from tidelake.model.snapshot import (
    PINNED,
    Action,
    AddExtent,
    AppendHot,
    Claim,
    Commit,
    Held,
    Snapshot,
    UpdateTable,
    inputs_of,
    nothing_held,
    schema_after,
    settings_after,
)


def rebase(
    commit: Commit, onto: Snapshot, *, live: Container[str], held: Held = nothing_held, is_first: bool = True
) -> Commit:
    """Return the same change on top of another snapshot, or raise what forbids it.

    ``live`` answers for the ids of ``inputs_of(commit)`` in ``onto``. A commit that fits already is returned equal. One
    that shares its snapshot with others, after some of them, is not the first.
    """
    if commit.scope != onto.scope:
        raise InvalidInputError("a commit belongs to one scope", commit=commit.scope, snapshot=onto.scope)
    if commit.is_exact and not (is_first and commit.base == onto.sequence):
        raise ConflictError("the table has changed since it was looked at", commit=commit.id, kind="moved")
    for taken in inputs_of(commit):
        if taken not in live:
            raise ConflictError("an input is no longer live", commit=commit.id, input=taken, kind="not_live")
    for claim in commit.claims:
        if held(claim):
            raise OverlapError(
                "the time window is already held", entity=claim.entity, buckets=f"{claim.first}..{claim.last}"
            )
    _check_pinned(commit, onto)
    _check_exact(commit, onto.schema, is_first=is_first and commit.base == onto.sequence)
    actions = tuple(_rebase_actions(commit, onto)) or (UpdateTable(),)  # all of it was there already
    if commit.base == onto.sequence and len(actions) == len(commit.actions) and all(map(is_, actions, commit.actions)):
        return commit
    return replace(commit, base=onto.sequence, actions=actions)


def gather(
    commits: Iterable[Commit], onto: Snapshot, *, live: Container[str], held: Held = nothing_held
) -> tuple[list[Commit], list[tuple[Commit, TidelakeError]]]:
    """Rebase commits onto one snapshot, each after the one before it, and part those that no rule lets through."""
    accepted: list[Commit] = []
    refused: list[tuple[Commit, TidelakeError]] = []
    taken: set[str] = set()
    claims: dict[str, list[Claim]] = {}  # by entity
    for commit in commits:

        def is_held(claim: Claim) -> bool:
            return any(claim.overlaps(other) for other in claims.get(claim.entity, ())) or held(claim)

        left = frozenset(item for item in inputs_of(commit) if item in live and item not in taken)
        try:
            fitted = rebase(commit, onto, live=left, held=is_held, is_first=not accepted)
            schema, settings = schema_after(fitted.actions, onto.schema), settings_after(fitted.actions, onto.settings)
            if schema is not onto.schema or settings is not onto.settings:
                onto = replace(onto, schema=schema, settings=settings)
        except TidelakeError as error:
            refused.append((commit, error.with_traceback(None)))  # which would keep all callers' frames alive
            continue
        accepted.append(fitted)
        taken.update(inputs_of(commit))
        for claim in commit.claims:
            claims.setdefault(claim.entity, []).append(claim)
    return accepted, refused


def _rebase_actions(commit: Commit, onto: Snapshot) -> Iterable[Action]:
    schema = onto.schema
    versions: dict[int, int] = {}  # from the versions this commit declared to those it gets
    for action in commit.actions:
        match action:
            case UpdateTable(schema=Schema() as wanted):
                merged = _merge(schema, wanted, commit)
                versions[wanted.version] = merged.version
                if merged != schema or action.settings:
                    yield replace(action, schema=merged)
                schema = merged
            case AddExtent(extent):
                version = versions.get(extent.schema_version, extent.schema_version)
                yield action if version == extent.schema_version else AddExtent(replace(extent, schema_version=version))
            case AppendHot(batch):
                version = versions.get(batch.schema_version, batch.schema_version)
                yield action if version == batch.schema_version else AppendHot(replace(batch, schema_version=version))
            case _:
                yield action


def _check_exact(commit: Commit, held: Schema, *, is_first: bool) -> None:
    """Refuse to make a long column real unseen, and whole numbers that no double holds where a column is real."""
    wanted = [action.schema for action in commit.actions if isinstance(action, UpdateTable) and action.schema]
    unseen = not is_first and any(becoming_real(held, schema) for schema in wanted)
    reals = {column.name for column in held if column.type.kind == "real"}
    reals.difference_update(*({c.name for c in schema if c.type.kind == "real"} for schema in wanted[-1:]))
    for action in commit.actions if reals and not unseen else ():
        if isinstance(action, AddExtent):
            unseen = unseen or has_inexact_longs(action.extent.column_stats, reals)
        elif isinstance(action, AppendHot) and (wanted or action.batch.schema_version != held.version):
            unseen = unseen or stream_has_inexact_longs(action.batch.payload, reals)
    if unseen:
        raise ConflictError("a column became real beside other rows", commit=commit.id, kind="schema")


def _merge(held: Schema, wanted: Schema, commit: Commit) -> Schema:
    if (unseen := alike_but_for_case(held, wanted)) is not None:  # its rows belong into the other writer's column
        message = "a column was added meanwhile that differs only in case"
        raise ConflictError(message, commit=commit.id, column=unseen, kind="schema")
    try:
        return held.widen(wanted.columns)
    except SchemaError as error:
        raise ConflictError(f"two schema changes do not merge: {error}", commit=commit.id, kind="schema") from error


def _check_pinned(commit: Commit, onto: Snapshot) -> None:
    changed = [action.settings for action in commit.actions if isinstance(action, UpdateTable)]
    for wanted, held in ((settings.get(name), onto.settings.get(name)) for settings in changed for name in PINNED):
        if wanted is not None and held is not None and wanted != held:
            raise InvalidInputError(
                "the table holds another entity", expected=held, found=wanted, kind="entity_mismatch"
            )

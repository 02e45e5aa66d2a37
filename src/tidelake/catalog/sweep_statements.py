"""Say in SQL how objects come in and go out: see ``sweep``.

It does not run anything.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Text, bindparam, delete, func, or_, select

from tidelake.catalog import layout as t
from tidelake.catalog.expressions import among

_TABLE = bindparam("table_id", type_=Text)
_USER = bindparam("user_id", type_=Text)
_SCOPE = bindparam("scope_id", type_=BigInteger)
_OLDEST = bindparam("oldest", type_=BigInteger)
_BEFORE = bindparam("before_us", type_=BigInteger)

_p, _g, _s, _e = t.pending.c, t.garbage.c, t.snapshots.c, t.extents.c

insert_pending, insert_garbage = t.insert_into(t.pending), t.insert_into(t.garbage)
list_pending = (
    select(_p.key, _p.table_id, _p.user_id, _p.owner, _p.since_us)
    .where(or_(_TABLE.is_(None), _p.table_id == _TABLE))
    .order_by(_p.since_us, _p.key)
)
in_garbage = select(_g.key).where(among(_g.key, "keys"))
take_pending = delete(t.pending).where(among(_p.key, "keys")).returning(_p.key, _p.table_id)
take_old_pending = delete(t.pending).where(_p.since_us < _BEFORE).returning(_p.key, _p.table_id)
take_tables_pending = delete(t.pending).where(_p.table_id == _TABLE).returning(_p.key, _p.table_id)
list_garbage = (
    select(_g.key, _g.table_id, _g.since_us, _g.reason)
    .where(_g.since_us < _BEFORE)
    .order_by(_g.since_us, _g.key)
    .limit(bindparam("limit", type_=BigInteger))
)
forget_garbage = delete(t.garbage).where(among(_g.key, "keys"))

locked_scope = (
    select(t.scopes.c.id, t.scopes.c.sequence)
    .where(t.scopes.c.table_id == _TABLE, t.scopes.c.user_id == _USER)
    .with_for_update()
)
in_force_at = select(func.max(_s.sequence)).where(_s.scope_id == _SCOPE, _s.committed_us <= _BEFORE)
coverage_before = (
    select(_s.coverage_key)
    .where(_s.scope_id == _SCOPE, _s.sequence < _OLDEST, _s.coverage_key.is_not(None))
    .except_(select(_s.coverage_key).where(_s.scope_id == _SCOPE, _s.sequence >= _OLDEST))
)
drop_snapshots = delete(t.snapshots).where(_s.scope_id == _SCOPE, _s.sequence < _OLDEST)
drop_extents = (
    delete(t.extents)
    .where(_e.scope_id == _SCOPE, _e.removed_seq <= _OLDEST)
    .returning(_e.ordinal, _e.key, _e.coverage_key)
)
drop_columns = delete(t.extent_columns).where(
    t.extent_columns.c.scope_id == _SCOPE, among(t.extent_columns.c.ordinal, "ordinals")
)
drop_hot = delete(t.hot_batches).where(t.hot_batches.c.scope_id == _SCOPE, t.hot_batches.c.removed_seq <= _OLDEST)

dropped_tables = select(t.tables.c.id).where(t.tables.c.dropped_us < _BEFORE)
scopes_of = select(t.scopes.c.id).where(t.scopes.c.table_id == _TABLE)
keys_of_scope = (
    select(_e.key, _e.coverage_key).where(_e.scope_id == _SCOPE),
    select(_s.coverage_key, _s.coverage_key).where(_s.scope_id == _SCOPE, _s.coverage_key.is_not(None)).distinct(),
)
purge_scope = tuple(
    delete(of).where(of.c.scope_id == _SCOPE)
    for of in (t.snapshots, t.extents, t.extent_columns, t.hot_batches, t.receipts, t.commit_keys, t.offsets)
)
purge_table = (
    *(delete(of).where(of.c.table_id == _TABLE) for of in (t.scopes, t.schemas, t.settings)),
    delete(t.tables).where(t.tables.c.id == _TABLE),
)

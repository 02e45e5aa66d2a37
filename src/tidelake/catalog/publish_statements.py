"""Say in SQL what a commit changes, and what becomes of tables and receipts: see ``publish`` and ``sql``.

It does not run anything.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Text, bindparam, delete, exists, insert, select, update

from tidelake.catalog import layout as t
from tidelake.catalog.expressions import among
from tidelake.catalog.layout import insert_into

_TABLE = bindparam("table_id", type_=Text)
_USER = bindparam("user_id", type_=Text)
_SCOPE = bindparam("scope_id", type_=BigInteger)
_SEQUENCE = bindparam("sequence", type_=BigInteger)
_SNAPSHOT = bindparam("snapshot_id", type_=Text)
_NAMESPACE, _NAME = bindparam("namespace", type_=Text), bindparam("name", type_=Text)
_TABLE_COLUMNS = (
    t.tables.c.id,
    t.tables.c.namespace,
    t.tables.c.name,
    t.tables.c.created_us,
    t.tables.c.dropped_us,
)

_stands = exists().where(t.tables.c.id == _TABLE, t.tables.c.dropped_us.is_(None))
swap = (
    update(t.scopes)
    .where(t.scopes.c.table_id == _TABLE, t.scopes.c.user_id == _USER, _stands)
    .where(t.scopes.c.snapshot_id == bindparam("expected", type_=Text), t.scopes.c.sequence == _SEQUENCE - 1)
    .values(snapshot_id=_SNAPSHOT, sequence=_SEQUENCE)
    .returning(t.scopes.c.id)
)
found_scope = (
    insert(t.scopes)
    .from_select(
        ["table_id", "user_id", "sequence", "snapshot_id"],
        select(_TABLE, _USER, _SEQUENCE, _SNAPSHOT).where(_stands),
    )
    .returning(t.scopes.c.id)
)
_RECEIPT_COLUMNS = (
    t.receipts.c.commit_id,
    t.receipts.c.snapshot_id,
    t.receipts.c.sequence,
    t.receipts.c.committed_us,
    t.receipts.c.rows,
    t.receipts.c.extents,
)
receipts_by_id = select(*_RECEIPT_COLUMNS).where(among(t.receipts.c.commit_id, "ids"))
receipts_by_key = (
    select(*_RECEIPT_COLUMNS, t.commit_keys.c.key)
    .join(t.commit_keys, t.receipts.c.commit_id == t.commit_keys.c.commit_id)
    .where(t.commit_keys.c.scope_id == _SCOPE, among(t.commit_keys.c.key, "keys"))
)
offsets = select(t.offsets.c.stream, t.offsets.c.batch).where(
    t.offsets.c.scope_id == _SCOPE, among(t.offsets.c.stream, "streams")
)
raise_offset = (
    update(t.offsets)
    .where(t.offsets.c.scope_id == _SCOPE, t.offsets.c.stream == bindparam("of_stream", type_=Text))
    .values(batch=bindparam("batch", type_=BigInteger))
)
remove_extents, drop_hot = (
    update(of)
    .where(of.c.scope_id == _SCOPE, among(of.c.id, "ids"), of.c.removed_seq.is_(None))
    .values(removed_seq=_SEQUENCE)
    .returning(of.c.id, rows, size)
    for of, rows, size in (
        (t.extents, t.extents.c.row_count, t.extents.c.byte_size),
        (t.hot_batches, t.hot_batches.c.rows, t.hot_batches.c.bytes),
    )
)
set_schema_version, set_settings_seq = (
    update(t.tables).where(t.tables.c.id == _TABLE).values({name: bindparam(name, type_=BigInteger)})
    for name in ("schema_version", "settings_seq")
)
insert_schema = insert_into(t.schemas)
insert_settings = insert_into(t.settings)
insert_snapshot = insert_into(t.snapshots)
insert_extent = insert_into(t.extents, "removed_seq")
insert_column = insert_into(t.extent_columns)
insert_hot = insert_into(t.hot_batches, "removed_seq")
insert_receipt = insert_into(t.receipts)
insert_key = insert_into(t.commit_keys)
insert_offset = insert_into(t.offsets)

drop_table = (
    update(t.tables)
    .where(t.tables.c.namespace == _NAMESPACE, t.tables.c.name == _NAME, t.tables.c.dropped_us.is_(None))
    .values(dropped_us=bindparam("now", type_=BigInteger))
    .returning(*_TABLE_COLUMNS)
)
insert_table = insert_into(t.tables)
expire_keys, expire_receipts = (
    delete(of).where(of.c.committed_us < bindparam("before_us", type_=BigInteger)) for of in (t.commit_keys, t.receipts)
)

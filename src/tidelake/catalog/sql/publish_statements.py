"""Define in SQL what a commit changes, and what becomes of tables and receipts: see ``publish`` and ``sql_catalog``.

It does not run anything.
"""

from __future__ import annotations

from tidelake.catalog.sql.layout import insert_into

_STANDS = "EXISTS (SELECT id FROM tables WHERE id = :table_id AND dropped_us IS NULL)"
swap = f"""
    UPDATE scopes SET snapshot_id = :snapshot_id, sequence = :sequence
    WHERE table_id = :table_id AND user_id = :user_id AND {_STANDS}
      AND snapshot_id = :expected AND sequence = :sequence - 1
    RETURNING id"""
found_scope = f"""
    INSERT INTO scopes (table_id, user_id, sequence, snapshot_id)
    SELECT CAST(:table_id AS TEXT), CAST(:user_id AS TEXT), CAST(:sequence AS BIGINT), CAST(:snapshot_id AS TEXT)
    WHERE {_STANDS}
    RETURNING id"""

_RECEIPT_COLUMNS = "r.commit_id, r.snapshot_id, r.sequence, r.committed_us, r.rows, r.extents, r.scope_id, r.checksum"
receipts_by_id = f"SELECT {_RECEIPT_COLUMNS} FROM receipts AS r WHERE r.commit_id AMONG :ids AS TEXT"
# A key without its receipt is found too: they are written and forgotten together, so it means damage. The second half
# reads the index alone, which has the keys once more.
receipts_by_key = f"""
    SELECT {_RECEIPT_COLUMNS}, k.key, k.checksum, 0
    FROM commit_keys AS k LEFT JOIN receipts AS r ON r.commit_id = k.commit_id
    WHERE k.scope_id = :scope_id AND k.key AMONG :keys AS TEXT
    UNION ALL SELECT {", ".join(["NULL"] * 8)}, k.key, k.checksum, 1 FROM commit_keys AS k
    WHERE k.scope_id = :scope_id AND k.checksum AMONG :checksums AS BIGINT"""
receipts_of_snapshot = f"""
    SELECT {_RECEIPT_COLUMNS} FROM receipts AS r WHERE r.scope_id = :scope_id AND r.sequence = :sequence"""
shares = (
    "SELECT n.commits, n.commits_checksum FROM snapshots AS n WHERE n.scope_id = :scope_id AND n.sequence = :sequence"
)
added_extents, added_hot = (
    f"SELECT id FROM {of} WHERE scope_id = :scope_id AND ordinal >= :first AND ordinal < :last ORDER BY ordinal"
    for of in ("extents", "hot_batches")
)

_END = "removed_seq = :sequence WHERE scope_id = :scope_id AND id AMONG :ids AS TEXT AND removed_seq IS NULL"
remove_extents = f"UPDATE extents SET {_END} RETURNING id, row_count, byte_size"
drop_hot = f"UPDATE hot_batches SET {_END} RETURNING id, rows, bytes"

set_schema_version = "UPDATE tables SET schema_version = :schema_version WHERE id = :table_id"
set_settings_seq = "UPDATE tables SET settings_seq = :settings_seq WHERE id = :table_id"
insert_schema = insert_into("schemas")
insert_settings = insert_into("settings")
insert_snapshot = insert_into("snapshots")
insert_extent = insert_into("extents", "removed_seq")
insert_column = insert_into("extent_columns")
insert_hot = insert_into("hot_batches", "removed_seq")
insert_receipt = insert_into("receipts")
insert_key = insert_into("commit_keys")

insert_table = insert_into("tables")
drop_table = """
    UPDATE tables SET dropped_us = :now WHERE namespace = :namespace AND name = :name AND dropped_us IS NULL
    RETURNING id, namespace, name, created_us, dropped_us"""
rename_table = """
    UPDATE tables SET namespace = :to_namespace, name = :to_name
    WHERE namespace = :namespace AND name = :name AND dropped_us IS NULL
    RETURNING id, namespace, name, created_us, dropped_us"""
expire_keys = "DELETE FROM commit_keys WHERE committed_us < :before_us"
expire_receipts = "DELETE FROM receipts WHERE committed_us < :before_us"

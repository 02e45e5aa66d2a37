"""Define in SQL how objects come in and go out: see ``sweep``.

It does not run anything.
"""

from __future__ import annotations

from tidelake.catalog.sql.layout import LATER, insert_into

insert_pending = insert_into("pending")
insert_garbage = f"{insert_into('garbage')} ON CONFLICT (key) DO NOTHING"  # a folder may be given up twice
list_pending = """
    SELECT key, table_id, user_id, owner, since_us FROM pending
    WHERE CAST(:table_id AS TEXT) IS NULL OR table_id = :table_id
    ORDER BY since_us, key"""
held_coverage = """
    SELECT coverage_key FROM extents WHERE scope_id = :scope_id AND coverage_key AMONG :keys AS TEXT
    UNION SELECT coverage_key FROM snapshots WHERE scope_id = :scope_id AND coverage_key AMONG :keys AS TEXT"""
in_garbage = "SELECT key FROM garbage WHERE key AMONG :keys AS TEXT"
take_pending = "DELETE FROM pending WHERE key AMONG :keys AS TEXT RETURNING key, table_id"
take_old_pending = "DELETE FROM pending WHERE since_us < :before_us RETURNING key, table_id"
take_tables_pending = "DELETE FROM pending WHERE table_id = :table_id RETURNING key, table_id"
list_garbage = """
    SELECT key, table_id, since_us, reason FROM garbage WHERE since_us < :before_us
    ORDER BY since_us, key LIMIT :limit"""
forget_pending = "DELETE FROM pending WHERE key AMONG :keys AS TEXT"
next_number = """
    INSERT INTO segments (folder, next_number) VALUES (:folder, 1)
    ON CONFLICT (folder) DO UPDATE SET next_number = segments.next_number + 1
    RETURNING next_number - 1"""
raise_number = """
    INSERT INTO segments (folder, next_number) VALUES (:folder, :number)
    ON CONFLICT (folder) DO UPDATE SET next_number = excluded.next_number
    WHERE excluded.next_number > segments.next_number"""
forget_garbage = "DELETE FROM garbage WHERE key AMONG :keys AS TEXT"

dropped_tables = """
    SELECT id FROM tables WHERE dropped_us < :before_us AND (CAST(:table_id AS TEXT) IS NULL OR id = :table_id)"""
name_of_table = "SELECT namespace, name, settings_seq FROM tables WHERE id = :table_id"
scopes_of = "SELECT id, user_id FROM scopes WHERE table_id = :table_id ORDER BY user_id DESC LIMIT :limit"
_OF_THESE = "scope_id AMONG :ids AS BIGINT"
leases_of_scopes = f"SELECT 1 FROM leases WHERE until_us > :now_us AND {_OF_THESE} LIMIT 1"
keys_of_scopes = (
    f"SELECT key, coverage_key FROM extents WHERE {_OF_THESE}",
    f"SELECT DISTINCT coverage_key FROM snapshots WHERE {_OF_THESE} AND coverage_key IS NOT NULL",
)
# Receipts have no index by scope: only those of the last scopes go, the others when they are old.
last_receipts = f"DELETE FROM receipts WHERE {_OF_THESE}"
_OF_SCOPE = ("extents", "extent_columns", "hot_batches", "commit_keys", "offsets", *LATER, "due_scopes")
purge_scopes = (
    *(f"DELETE FROM {table} WHERE {_OF_THESE}" for table in ("snapshots", *_OF_SCOPE)),
    "DELETE FROM scopes WHERE id AMONG :ids AS BIGINT",
)
statistics_after_a_step = """
    SELECT c.ordinal FROM extent_columns AS c WHERE c.scope_id = :scope_id
    ORDER BY c.ordinal, c.name LIMIT 1 OFFSET :step"""
drop_statistics = "DELETE FROM extent_columns WHERE scope_id = :scope_id AND ordinal <= :upto"
purge_table = (
    *(f"DELETE FROM {table} WHERE table_id = :table_id" for table in ("scopes", "schemas", "settings")),
    "DELETE FROM tables WHERE id = :table_id",
)

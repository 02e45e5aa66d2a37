"""Define in SQL how objects come in and go out: see ``sweep``.

It does not run anything.
"""

from __future__ import annotations

from tidelake.catalog.sql.layout import LATER, insert_into

insert_pending, insert_garbage = insert_into("pending"), insert_into("garbage")
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
forget_garbage = "DELETE FROM garbage WHERE key AMONG :keys AS TEXT"

dropped_tables = """
    SELECT id FROM tables WHERE dropped_us < :before_us AND (CAST(:table_id AS TEXT) IS NULL OR id = :table_id)"""
scopes_of = "SELECT id FROM scopes WHERE table_id = :table_id"
keys_of_scope = (
    "SELECT key, coverage_key FROM extents WHERE scope_id = :scope_id",
    "SELECT DISTINCT coverage_key FROM snapshots WHERE scope_id = :scope_id AND coverage_key IS NOT NULL",
)
statistics_after_a_step = """
    SELECT c.ordinal FROM extent_columns AS c WHERE c.scope_id = :scope_id
    ORDER BY c.ordinal, c.name LIMIT 1 OFFSET :step"""
drop_statistics = "DELETE FROM extent_columns WHERE scope_id = :scope_id AND ordinal <= :upto"
_OF_SCOPE = ("snapshots", "extents", "extent_columns", "hot_batches", "receipts", "commit_keys", "offsets", *LATER)
purge_scope = tuple(f"DELETE FROM {table} WHERE scope_id = :scope_id" for table in _OF_SCOPE)
purge_table = (
    *(f"DELETE FROM {table} WHERE table_id = :table_id" for table in ("scopes", "schemas", "settings")),
    "DELETE FROM tables WHERE id = :table_id",
)

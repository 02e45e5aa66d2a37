"""Define in SQL which snapshots stay, and what goes with those that do not: see ``retained``.

It does not run anything.
"""

from __future__ import annotations

from tidelake.catalog.sql.layout import insert_into

# Shared by those who take a snapshot into use, alone by who lets snapshots go. It is no commit's business.
share_guard = "SELECT pg_advisory_xact_lock_shared(:guard)"
take_guard = "SELECT pg_advisory_xact_lock(:guard)"

insert_pin, insert_gap = insert_into("pins"), insert_into("gaps")
_PIN_COLUMNS = "p.name, p.sequence, p.created_us, p.checksum"
list_pins = f"SELECT {_PIN_COLUMNS} FROM pins AS p WHERE p.scope_id = :scope_id ORDER BY p.sequence, p.name"
pin_of = f"SELECT {_PIN_COLUMNS} FROM pins AS p WHERE p.scope_id = :scope_id AND p.name = :name"
delete_pin = "DELETE FROM pins WHERE scope_id = :scope_id AND name = :name"

put_lease = f"""
    {insert_into("leases")}
    ON CONFLICT (scope_id, owner) DO UPDATE SET sequence = excluded.sequence, until_us = excluded.until_us"""
_OF_SCOPE = "scope_id = (SELECT id FROM scopes WHERE table_id = :table_id AND user_id = :user_id)"
prolong_lease = f"""
    UPDATE leases SET until_us = :until_us
    WHERE owner = :owner AND {_OF_SCOPE} AND sequence <= :sequence AND until_us > :now_us"""
drop_lease = f"DELETE FROM leases WHERE owner = :owner AND {_OF_SCOPE}"
drop_old_leases = "DELETE FROM leases WHERE scope_id = :scope_id AND until_us <= :now_us"
lowest_lease = "SELECT MIN(sequence) FROM leases WHERE scope_id = :scope_id"

locked_scope = "SELECT id, sequence FROM scopes WHERE table_id = :table_id AND user_id = :user_id FOR UPDATE"
in_force_at = "SELECT MAX(sequence) FROM snapshots WHERE scope_id = :scope_id AND committed_us <= :before_us"

span = "SELECT COUNT(*), MIN(committed_us), MAX(sequence) FROM snapshots WHERE scope_id = :scope_id"

_PINNED = "EXISTS (SELECT 1 FROM pins AS p WHERE p.scope_id = {0}.scope_id AND p.sequence = {0}.sequence)"
expirable = f"""
    SELECT COUNT(*) FROM snapshots AS n
    WHERE n.scope_id = :scope_id AND n.sequence < :oldest AND NOT {_PINNED.format("n")}"""
after_a_step = f"""
    SELECT n.sequence FROM snapshots AS n
    WHERE n.scope_id = :scope_id AND n.sequence < :oldest AND NOT {_PINNED.format("n")}
    ORDER BY n.sequence LIMIT 1 OFFSET :step"""
new_gaps = f"""
    SELECT DISTINCT o.sequence, n.committed_us
    FROM pins AS o JOIN snapshots AS n ON n.scope_id = o.scope_id AND n.sequence = o.sequence + 1
    WHERE o.scope_id = :scope_id AND o.sequence + 1 < :bound AND NOT {_PINNED.format("n")}"""
drop_snapshots = f"""
    DELETE FROM snapshots WHERE scope_id = :scope_id AND sequence < :bound AND NOT {_PINNED.format("snapshots")}
    RETURNING coverage_key"""
drop_gaps = f"DELETE FROM gaps WHERE scope_id = :scope_id AND sequence < :bound AND NOT {_PINNED.format('gaps')}"
_UNSEEN = """
    scope_id = :scope_id AND removed_seq <= :bound AND NOT EXISTS (
        SELECT 1 FROM snapshots AS n WHERE n.scope_id = {0}.scope_id
        AND n.sequence >= {0}.added_seq AND n.sequence < {0}.removed_seq)"""
drop_extents = f"DELETE FROM extents WHERE {_UNSEEN.format('extents')} RETURNING ordinal, key, coverage_key"
drop_hot = f"DELETE FROM hot_batches WHERE {_UNSEEN.format('hot_batches')}"
drop_columns = "DELETE FROM extent_columns WHERE scope_id = :scope_id AND ordinal AMONG :ordinals AS BIGINT"
still_named = " UNION ".join(
    f"SELECT {column} FROM {of} WHERE scope_id = :scope_id AND {column} AMONG :keys AS TEXT"
    for of, column in (("extents", "key"), ("extents", "coverage_key"), ("snapshots", "coverage_key"))
)

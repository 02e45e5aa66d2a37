"""Define in SQL how work units are handed out: see ``work``.

It does not run anything.
"""

from __future__ import annotations

from tidelake.catalog.sql.layout import columns_of, insert_into

COLUMNS = columns_of("work_units")
MOVED = ("state", "attempts", "token", "owner", "ready_us", "lease_until_us", "updated_us", "error")

_UNITS = f"SELECT {', '.join(COLUMNS)} FROM work_units"

insert_unit = insert_into("work_units")
by_id = f"{_UNITS} WHERE id = :id"
open_by_key = f"{_UNITS} WHERE kind = :kind AND key = :key AND state IN ('queued', 'leased')"
ready = f"""
    {_UNITS} WHERE kind AMONG :kinds AS TEXT
      AND (state = 'queued' AND ready_us <= :now OR state = 'leased' AND lease_until_us < :now)
    ORDER BY priority DESC, ready_us, id LIMIT 1 FOR UPDATE SKIP LOCKED"""
move = f"""
    UPDATE work_units SET {", ".join(f"{name} = :new_{name}" for name in MOVED)}
    WHERE id = :unit AND token = :held AND state = :was"""
listed = f"""
    {_UNITS} WHERE (CAST(:state AS TEXT) IS NULL OR state = :state) AND (CAST(:kind AS TEXT) IS NULL OR kind = :kind)
    ORDER BY created_us DESC, id DESC LIMIT :limit"""
fenced = "SELECT id FROM work_units WHERE id = :unit AND token = :held AND state = 'leased' FOR UPDATE"
forget = "DELETE FROM work_units WHERE state = 'done' AND updated_us < :before_us"

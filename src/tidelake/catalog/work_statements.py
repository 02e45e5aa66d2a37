"""Say in SQL how work units are handed out: see ``work``.

It does not run anything.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Text, and_, bindparam, delete, or_, select, update

from tidelake.catalog.expressions import among
from tidelake.catalog.layout import insert_into, work_units

_w = work_units.c
_NOW = bindparam("now", type_=BigInteger)
_STATE, _KIND = bindparam("state", type_=Text), bindparam("kind", type_=Text)
COLUMNS = tuple(_w)
MOVED = ("state", "attempts", "token", "owner", "ready_us", "lease_until_us", "updated_us", "error")

insert_unit = insert_into(work_units)
by_id = select(*COLUMNS).where(_w.id == bindparam("id", type_=Text))
open_by_key = select(*COLUMNS).where(
    _w.kind == _KIND,
    _w.key == bindparam("key", type_=Text),
    or_(_w.state == "queued", _w.state == "leased"),
)
ready = (
    select(*COLUMNS)
    .where(among(_w.kind, "kinds"))
    .where(
        or_(
            and_(_w.state == "queued", _w.ready_us <= _NOW),
            and_(_w.state == "leased", _w.lease_until_us < _NOW),
        )
    )
    .order_by(_w.priority.desc(), _w.ready_us, _w.id)
    .limit(1)
    .with_for_update(skip_locked=True)
)
move = (
    update(work_units)
    .where(_w.id == bindparam("unit", type_=Text), _w.token == bindparam("held", type_=BigInteger))
    .where(_w.state == bindparam("was", type_=Text))
    .values({name: bindparam(f"new_{name}", type_=_w[name].type) for name in MOVED})
)
listed = (
    select(*COLUMNS)
    .where(or_(_STATE.is_(None), _w.state == _STATE), or_(_KIND.is_(None), _w.kind == _KIND))
    .order_by(_w.created_us.desc(), _w.id.desc())
    .limit(bindparam("limit", type_=BigInteger))
)
fenced = (
    select(_w.id)
    .where(_w.id == bindparam("unit", type_=Text), _w.token == bindparam("held", type_=BigInteger))
    .where(_w.state == "leased")
    .with_for_update()
)
forget = delete(work_units).where(_w.state == "done", _w.updated_us < bindparam("before_us", type_=BigInteger))

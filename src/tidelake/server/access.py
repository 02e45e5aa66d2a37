"""Keep tokens and say what each allows.

A token is ``tl_<id>_<secret>``. Its secret is 256 random bits and is shown once; what is kept is one object a token in
the lake's own store, on every catalog alike::

    _access/tokens/<id>.json      {"id", "name", "roles", "namespaces", "tables", "users", "hash", "created_us", …}

The hash is SHA-256: a secret of that size cannot be guessed, so a slow hash would protect nothing. It does not know
HTTP: see ``credentials``.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any

import orjson

from tidelake.catalog.names import check_user
from tidelake.catalog.protocol import now_us, parse_table_name
from tidelake.errors import CorruptError, InvalidInputError, NotFoundError
from tidelake.model.times import duration_us
from tidelake.objects import ObjectStore
from tidelake.server.call import ROLES
from tidelake.server.refusals import Forbidden

FOLDER = "_access/tokens"

_TOKEN = re.compile(r"tl_([0-9a-f]{12})_([0-9a-zA-Z_-]{43})")
_ID = re.compile(r"[0-9a-f]{12}")
_NAMESPACE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,127}")


@dataclass(frozen=True, slots=True)
class Grant:
    """What a token allows. No namespaces and no tables: all of them; no users: whoever is asked for."""

    id: str = ""
    name: str = "anonymous"
    roles: tuple[str, ...] = ROLES
    namespaces: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    rate_bytes: int = 0  # a second; 0 is no limit
    rate_requests: int = 0
    quota_bytes: int = 0  # a day
    created_us: int = 0
    expires_us: int | None = None

    def allows(self, role: str) -> bool:
        """Whether it has a role; an admin has all."""
        return role in self.roles or "admin" in self.roles

    def may_reach(self, table: str) -> bool:
        """Whether a table, by its full name, is in its scope."""
        if not self.namespaces and not self.tables:
            return True
        return table in self.tables or table.partition(".")[0] in self.namespaces

    def check(self, role: str, table: str | None = None) -> None:
        """Refuse what it does not allow; the message tells nothing of what there is."""
        if not self.allows(role):
            raise Forbidden("the token has no such role", role=role)
        if table is not None and not self.may_reach(table):
            raise Forbidden("the token does not reach this table", table=table)

    def namespace(self, asked: str | None) -> str:
        """Return the namespace of tables that name none: what a tenant header asks for if it is in scope."""
        if asked:
            if not _NAMESPACE.fullmatch(asked):
                raise Forbidden("the tenant is not a namespace")
            if (self.namespaces or self.tables) and asked not in self._namespaces():
                raise Forbidden("the token does not reach this tenant")
            return asked
        own = self._namespaces()
        return own[0] if len(own) == 1 else "default"

    def user(self, asked: str | None) -> str | None:
        """Return the user that is acted for: the one asked for if it may be, or else the only one."""
        if asked:
            if self.users and asked not in self.users:
                raise Forbidden("the token does not act for this user")
            return check_user(asked)
        if len(self.users) > 1:
            raise Forbidden("the token acts for several users: name one")
        return self.users[0] if self.users else None

    def _namespaces(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.namespaces, *(name.partition(".")[0] for name in self.tables))))


@dataclass(frozen=True, slots=True)
class _Kept:
    grant: Grant
    hash: str


def create_token(
    store: ObjectStore,
    name: str,
    *,
    roles: Iterable[str],
    namespaces: Iterable[str] = (),
    tables: Iterable[str] = (),
    users: Iterable[str] = (),
    rate_bytes: int = 0,
    rate_requests: int = 0,
    quota_bytes: int = 0,
    expires_in: str | None = None,
) -> tuple[str, Grant]:
    """Make a token and keep what it allows; the token itself is returned, this once."""
    if not name.isprintable() or not 0 < len(name) <= 128:
        raise InvalidInputError("a token's name is up to 128 printable characters", kind="bad_name")
    chosen = tuple(dict.fromkeys(roles))
    if not chosen or set(chosen) - set(ROLES):
        raise InvalidInputError("a token has roles of these", roles=", ".join(ROLES), kind="bad_role")
    for namespace in (namespaces := tuple(namespaces)):
        if not _NAMESPACE.fullmatch(namespace):
            raise InvalidInputError("not a namespace", namespace=ascii(namespace)[:80], kind="bad_name")
    if min(rate_bytes, rate_requests, quota_bytes) < 0:
        raise InvalidInputError("a rate or a quota is not negative", kind="bad_rate")
    created_us = now_us()
    grant = Grant(
        id=secrets.token_hex(6),
        name=name,
        roles=chosen,
        namespaces=namespaces,
        tables=tuple(".".join(parse_table_name(table)) for table in tables),
        users=tuple(map(check_user, users)),
        rate_bytes=rate_bytes,
        rate_requests=rate_requests,
        quota_bytes=quota_bytes,
        created_us=created_us,
        expires_us=None if expires_in is None else created_us + duration_us(expires_in),
    )
    secret = secrets.token_urlsafe(32)
    body = {**asdict(grant), "hash": _hash(secret)}
    store.put_if_absent(_key(grant.id), orjson.dumps(body))
    return f"tl_{grant.id}_{secret}", grant


def list_tokens(store: ObjectStore) -> list[Grant]:
    """Return what tokens there are, the oldest first."""
    return sorted((kept.grant for kept in _read_all(store)), key=lambda grant: (grant.created_us, grant.id))


def revoke_token(store: ObjectStore, id_or_name: str) -> list[Grant]:
    """Take the token with an id, or all with a name, away."""
    found = [grant for grant in list_tokens(store) if id_or_name in (grant.id, grant.name)]
    if not found:
        raise NotFoundError("no such token", token=id_or_name[:40], kind="no_token")
    store.delete([_key(grant.id) for grant in found])
    return found


def find_grant(store: ObjectStore, token: str) -> Grant | None:
    """Return what a token allows; None if it is not one that is kept, or is over."""
    parts = _TOKEN.fullmatch(token)
    if parts is None:
        return None
    try:
        kept = _read(store, parts[1])
    except NotFoundError:
        return None
    if not hmac.compare_digest(kept.hash, _hash(parts[2])):
        return None
    return kept.grant if is_valid(kept.grant, now_us()) else None


def has_tokens(store: ObjectStore) -> bool:
    """Whether there is any token."""
    return next(iter(store.list(FOLDER)), None) is not None


def is_valid(grant: Grant, at_us: int) -> bool:
    """Whether a token is not over."""
    return grant.expires_us is None or at_us < grant.expires_us


def _read_all(store: ObjectStore) -> list[_Kept]:
    names = [meta.key.rpartition("/")[2].removesuffix(".json") for meta in store.list(FOLDER)]
    return [_read(store, name) for name in names if _ID.fullmatch(name)]


def _read(store: ObjectStore, id: str) -> _Kept:
    data = bytes(store.get(_key(id)))
    try:
        body: dict[str, Any] = orjson.loads(data)
        known = {each.name for each in fields(Grant)}
        values: dict[str, Any] = {
            name: tuple(v) if isinstance(v, list) else v for name, v in body.items() if name in known
        }
        grant, hashed = Grant(**values), str(body["hash"])
        if grant.id != id or not set(grant.roles) <= set(ROLES):
            raise ValueError("it is another's")
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptError("a token cannot be read", token=id, kind="bad_token") from error
    return _Kept(grant, hashed)


def _key(id: str) -> str:
    return f"{FOLDER}/{id}.json"


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()

"""Find the token in a request, and remember for some seconds what it allows.

Agents name their token in different ways, all in the header ``Authorization``::

    Bearer <token>                      most
    Basic base64(<anything>:<token>)    Grafana, Prometheus, Elasticsearch
    Splunk <token>                      HTTP event collectors
    Token <token>                       InfluxDB
    ApiKey base64(<id>:<token>)         Elasticsearch; or the token itself

A token that was revoked, on any node, is refused everywhere within ``REMEMBER_S``. It does not know what tokens allow:
see ``access``. How much is left of its rates and quotas is in ``allowance``.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass

from tidelake.catalog.protocol import now_us
from tidelake.objects import ObjectStore
from tidelake.server.access import Grant, find_grant, is_valid
from tidelake.server.allowance import Allowance
from tidelake.server.buckets import Buckets
from tidelake.server.refusals import Unauthenticated

REMEMBER_S = 5.0
REMEMBERED = 10_000  # tokens, valid or not; more begin anew
MAX_HEADER = 4096
ANONYMOUS = Grant()


def token_of(headers: Mapping[str, str]) -> str | None:
    """Return the token that a request names; None if it names none."""
    text = headers.get("authorization", "")
    if not text or len(text) > MAX_HEADER:
        return None
    scheme, _, rest = text.strip().partition(" ")
    rest = rest.strip()
    match scheme.lower():
        case "bearer" | "token" | "splunk":
            return rest
        case "basic":
            return _decoded(rest).partition(":")[2] or None
        case "apikey":
            return rest if rest.startswith("tl_") else _decoded(rest).partition(":")[2] or None
        case _:
            return None


def _decoded(text: str) -> str:
    """Decode base64, padded or not; nothing if it is none."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=False).decode()
    except (binascii.Error, ValueError):
        return ""


@dataclass(slots=True)
class _Known:
    grant: Grant | None
    until_s: float


class Keeper:
    """Ask the lake for tokens, and remember the answers. ``known`` is for the event loop, ``find`` for any thread."""

    def __init__(self, store: ObjectStore, *, required: bool, buckets: Buckets | None = None) -> None:
        self._store, self.required = store, required
        self.allowance = Allowance(store, buckets=buckets)
        self._known: dict[bytes, _Known] = {}

    def known(self, token: str | None) -> Grant | None:
        """Return what is remembered of a token; None if it must be asked for. Unauthenticated if it is not one."""
        if token is None:
            if self.required:
                raise Unauthenticated("a token is needed")
            return ANONYMOUS
        if not self.required and not token.startswith("tl_"):
            return ANONYMOUS  # agents send what they are configured with, and nobody asked for it
        found = self._known.get(_digest(token))
        if found is None or time.monotonic() >= found.until_s:
            return None
        return _checked(found.grant)

    def find(self, token: str) -> Grant:
        """Ask the lake what a token allows."""
        grant = find_grant(self._store, token)
        if grant is not None and grant.quota_bytes:
            self.allowance.exchange(grant.id)
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[_digest(token)] = _Known(grant, time.monotonic() + REMEMBER_S)
        return _checked(grant)


def _checked(grant: Grant | None) -> Grant:
    if grant is None or not is_valid(grant, now_us()):
        raise Unauthenticated("the token is not known, or is over")
    return grant


def _digest(token: str) -> bytes:
    return hashlib.blake2b(token.encode(errors="replace"), digest_size=16).digest()

"""Find the token in a request, and remember for some seconds what it allows.

Agents name their token in different ways, all in the header ``Authorization``::

    Bearer <token>                      most
    Basic base64(<anything>:<token>)    Grafana, Prometheus, Elasticsearch
    Splunk <token>                      HTTP event collectors
    Token <token>                       InfluxDB
    ApiKey base64(<id>:<token>)         Elasticsearch; or the token itself

A token that was revoked, on any node, is refused everywhere within ``REMEMBER_S``. It does not know what tokens allow:
see ``access``.
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
from tidelake.server.refusals import Busy, Unauthenticated

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

    def __init__(self, store: ObjectStore, *, required: bool) -> None:
        self._store, self.required = store, required
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
        if len(self._known) >= REMEMBERED:
            self._known.clear()
        self._known[_digest(token)] = _Known(grant, time.monotonic() + REMEMBER_S)
        return _checked(grant)


class Rates:
    """Hold tokens to their rates: a bucket of a second, which a request that is larger may overdraw when it is full."""

    def __init__(self) -> None:
        self._left: dict[tuple[str, str], tuple[float, float]] = {}  # what is left, and when that was

    def check(self, grant: Grant, size: int) -> None:
        """Take a request of some bytes off a token's buckets, or refuse it."""
        limits = (("bytes", grant.rate_bytes, size), ("requests", grant.rate_requests, 1))
        now_s = time.monotonic()
        left = {}
        for what, rate, amount in limits:
            if not rate:
                continue
            had, at_s = self._left.get((grant.id, what), (float(rate), now_s))
            there = min(float(rate), had + (now_s - at_s) * rate)
            if there < min(amount, rate):
                raise Busy("the token's rate is used up", rate=f"{rate} {what}/s", kind="rate")
            left[grant.id, what] = (there - amount, now_s)
        self._left |= left


def _checked(grant: Grant | None) -> Grant:
    if grant is None or not is_valid(grant, now_us()):
        raise Unauthenticated("the token is not known, or is over")
    return grant


def _digest(token: str) -> bytes:
    return hashlib.blake2b(token.encode(errors="replace"), digest_size=16).digest()

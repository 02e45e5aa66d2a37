"""Send the page's own files, with headers that let a browser run nothing else.

The files are few and small: they are read and compressed once. A browser may keep the script and the style sheet for
good, because their addresses carry a digest of their bytes; the document it asks for anew each time, by its digest.
``/`` is also where clients of Elasticsearch say hello: the page answers there only who asks for HTML. It does not know
who asks: nothing of a lake is in these files.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from starlette.routing import Match
from starlette.routing import Route as HttpRoute

from tidelake.server.call import Answer
from tidelake.server.http import Message, Receive, Send, send_answer

ASSETS = Path(__file__).parent / "assets"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
DOCUMENT = "index.html"
FOR_GOOD = "public, max-age=31536000, immutable"
ASK_AGAIN = "no-cache"


@dataclass(frozen=True, slots=True)
class Asset:
    """A file, as it is sent."""

    body: bytes
    packed: bytes
    content_type: str
    tag: str


@cache
def assets() -> dict[str, Asset]:
    """Return the files by name; the document has the digests of the others in their addresses."""
    found = {path.name: path.read_bytes() for path in sorted(ASSETS.iterdir()) if path.suffix in TYPES}
    document = found[DOCUMENT].decode()
    for name, body in found.items():
        document = document.replace(f"page/{name}", f"page/{name}?{digest(body)}")
    found[DOCUMENT] = document.encode()
    return {name: _asset(name, body) for name, body in found.items()}


def digest(body: bytes) -> str:
    """Return a short digest of a file."""
    return hashlib.sha256(body).hexdigest()[:16]


def _asset(name: str, body: bytes) -> Asset:
    packed = gzip.compress(body, 9, mtime=0)
    return Asset(body, packed, TYPES[Path(name).suffix], f'"{digest(body)}"')


class _File:
    """A file at its address."""

    def __init__(self, name: str | None) -> None:
        self._name = name

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        asset = assets().get(self._name or scope["path_params"]["name"])
        await send_answer(send, answer_file(asset, headers), with_body=scope["method"] != "HEAD")


def answer_file(asset: Asset | None, headers: dict[str, str]) -> Answer:
    """Answer with a file, compressed if the client reads that, or with what says that the client has it."""
    if asset is None:
        return Answer.json({"error": "no such file", "kind": "not_found"}, 404)
    lasting = ASK_AGAIN if asset.content_type.startswith("text/html") else FOR_GOOD
    told = {**HEADERS, "etag": asset.tag, "cache-control": lasting, "vary": "accept-encoding"}
    if asset.tag in headers.get("if-none-match", ""):
        return Answer(304, b"", asset.content_type, told)
    if "gzip" in headers.get("accept-encoding", ""):
        return Answer(200, asset.packed, asset.content_type, {**told, "content-encoding": "gzip"})
    return Answer(200, asset.body, asset.content_type, told)


class _ForPeople(HttpRoute):
    """A route for those who ask for HTML."""

    def matches(self, scope: Any) -> tuple[Match, Any]:
        accepts = next((value for name, value in scope.get("headers", ()) if name == b"accept"), b"")
        return super().matches(scope) if b"text/html" in accepts else (Match.NONE, {})


def page_routes() -> Sequence[HttpRoute]:
    """Return the routes of the page's files."""
    methods = ["GET", "HEAD"]
    return [_ForPeople("/", _File(DOCUMENT), methods=methods), HttpRoute("/page/{name}", _File(None), methods=methods)]

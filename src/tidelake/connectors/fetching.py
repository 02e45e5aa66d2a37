"""Fetch what an HTTP endpoint has of one window of time: samples of Prometheus, events of Sentry, or rows of JSON.

Prometheus is asked for raw samples, by a range selector, so that times are those of the scrapes and not of a grid. Any
other endpoint is declared in a few words: where in its answer the rows are, and how it names the next page. Pages are
followed on the same host only, and redirects not at all, since headers carry secrets. It does not commit.
"""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urljoin, urlsplit

import orjson

from tidelake.connectors.definition import SourceDefinition, expanded
from tidelake.connectors.failures import unreachable
from tidelake.errors import InvalidInputError, StorageError, UnavailableError

TIMEOUT_S = 30.0
MAX_BYTES = 64 << 20  # of one answer
MAX_PAGES = 1_000  # of one window
REFUSALS = (400, 401, 403, 404)  # of what is asked, or of who asks: the next window would be refused too
SENTRY_FIELDS = "id,timestamp,title,message,level,project,environment,release,transaction,event.type,user.display"
SAMPLES = {"ts": "timestamp", "name": "string", "value": "real", "labels": "dynamic"}

_LINK = re.compile(r'<([^>]*)>((?:\s*;\s*[A-Za-z]+="[^"]*")*)')
_PARAMETER = re.compile(r';\s*([A-Za-z]+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Window:
    """A window of time, its end excluded."""

    start_us: int
    end_us: int


def fetch(definition: SourceDefinition, window: Window) -> list[dict[str, Any]]:
    """Return the rows of a window."""
    return _samples(definition, window) if definition.kind == "prometheus" else _rows(definition, window)


def _samples(definition: SourceDefinition, window: Window) -> list[dict[str, Any]]:
    selector = str(definition.options.get("selector") or '{__name__=~".+"}')
    seconds = -(-(window.end_us - window.start_us) // 1_000_000) + 1  # one more: versions differ in which end is open
    base = definition.url.replace("prometheus+https://", "https://").replace("prometheus://", "http://")
    asked = urlencode({"query": f"{selector}[{seconds}s]", "time": f"{window.end_us / 1e6:.3f}"})
    answer, _ = _get(f"{base.rstrip('/')}/api/v1/query?{asked}", definition.options)
    if not isinstance(answer, dict) or answer.get("status") != "success":
        raise StorageError("Prometheus has not answered the question", kind="source_unreachable")
    rows: list[dict[str, Any]] = []
    for series in answer["data"]["result"]:
        labels = dict(series["metric"])
        name = labels.pop("__name__", None)
        for seconds_at, value in series["values"]:
            at_us = round(float(seconds_at) * 1000) * 1000
            if window.start_us <= at_us < window.end_us:
                rows.append({"ts": _time(at_us), "name": name, "value": float(value), "labels": labels})
    return rows


def _rows(definition: SourceDefinition, window: Window) -> list[dict[str, Any]]:
    options = _declared(definition)
    times = {"start": _text(window.start_us), "end": _text(window.end_us)}
    address: str | None = re.sub(r"\{(start|end)\}", lambda found: times[found[1]], address_of(definition))
    rows: list[dict[str, Any]] = []
    for _ in range(MAX_PAGES):
        if address is None:
            return rows
        answer, headers = _get(address, options)
        found = _at(answer, str(options.get("rows") or ""))
        if not isinstance(found, list):
            raise InvalidInputError(
                "there is no list of rows in the answer: say where with the option rows=path.to.list",
                kind="bad_answer",
            )  # fmt: skip
        rows += [each if isinstance(each, dict) else {"value": each} for each in found]
        address = _next(address, answer, headers, options)
    raise UnavailableError(
        "a window has too many pages: use a shorter schedule", pages=MAX_PAGES, kind="too_many_pages"
    )


def address_of(definition: SourceDefinition) -> str:
    """Return the address that a source is asked at, with places for the window's times."""
    if definition.kind != "sentry":
        return definition.url
    parts = urlsplit(definition.url)
    organization = parts.path.strip("/")
    if not organization or "/" in organization or not parts.netloc:
        raise InvalidInputError("the address of Sentry is sentry://host/organization", kind="bad_url")
    asked = definition.options
    fields = str(asked.get("fields") or SENTRY_FIELDS).split(",")
    words = [("field", name.strip()) for name in fields] + [("per_page", "100"), ("sort", "timestamp")]
    words += [(name, str(asked[name])) for name in ("project", "query", "environment") if asked.get(name)]
    scheme = "http" if parts.scheme == "sentry+http" else "https"
    path = f"/api/0/organizations/{quote(organization, safe='')}/events/"
    return f"{scheme}://{parts.netloc}{path}?{urlencode(words)}&start={{start}}&end={{end}}"


def time_of(definition: SourceDefinition) -> str | None:
    """Return the field that is the time of rows, if it is known."""
    return _declared(definition).get("time")


def _declared(definition: SourceDefinition) -> Mapping[str, Any]:
    """Return how an endpoint answers; Sentry's is known."""
    if definition.kind != "sentry":
        return definition.options
    token = str(definition.options.get("token") or "${SENTRY_TOKEN}")
    headers = {"Authorization": f"Bearer {token}", **dict(definition.options.get("headers") or {})}
    return {"rows": "data", "time": "timestamp", **definition.options, "headers": headers}


def _next(address: str, answer: Any, headers: Mapping[str, str], options: Mapping[str, Any]) -> str | None:
    """Return the address of the next page: from the header Link, or from a cursor in the answer."""
    if path := options.get("cursor"):
        cursor = _at(answer, str(path))
        if not cursor:
            return None
        parts = urlsplit(address)
        name = str(options.get("cursor_parameter") or "cursor")
        words = [pair for pair in parse_qsl(parts.query) if pair[0] != name]
        return str(parts._replace(query=urlencode([*words, (name, str(cursor))])).geturl())
    for target, rest in _LINK.findall(headers.get("link", "")):
        words_of = dict(_PARAMETER.findall(rest))
        if words_of.get("rel") == "next" and words_of.get("results", "true") == "true":
            found = str(urljoin(address, target))
            if urlsplit(found)[:2] != urlsplit(address)[:2]:
                raise InvalidInputError("the next page is on another host", kind="bad_answer")
            return found
    return None


def _get(address: str, options: Mapping[str, Any]) -> tuple[Any, Mapping[str, str]]:
    headers = {str(name): expanded(str(value)) for name, value in dict(options.get("headers") or {}).items()}
    try:
        request = urllib.request.Request(
            expanded(address, quoting=True), headers={"Accept": "application/json", **headers}
        )
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=TIMEOUT_S) as answer:
            data = answer.read(MAX_BYTES + 1)
            told = {name.lower(): value for name, value in answer.headers.items()}
    except urllib.error.HTTPError as error:
        error.close()
        if error.code in REFUSALS or 300 <= error.code < 400:
            raise InvalidInputError(
                "the endpoint refuses: check its address and its credentials", status=error.code, kind="source_refused"
            ) from error
        raise StorageError("the endpoint does not answer well", status=error.code, kind="source_unreachable") from error
    except (ValueError, http.client.InvalidURL):  # its words, and of its causes, have the secrets
        raise InvalidInputError(
            "the address or a header cannot be sent: look for spaces and ends of lines in it, and in the variables "
            "that it names", kind="bad_url",
        ) from None  # fmt: skip
    except http.client.HTTPException as error:  # an answer that was cut off
        raise unreachable(type(error).__name__) from error
    except OSError as error:
        raise unreachable(error) from error
    if len(data) > MAX_BYTES:
        raise UnavailableError("an answer is too large: use a shorter schedule", bytes=MAX_BYTES, kind="too_large")
    if len(data) < int(told.get("content-length") or 0):
        raise unreachable("its answer was cut off", bytes=len(data))
    try:
        return orjson.loads(data), told
    except ValueError as error:
        raise StorageError("the answer is not JSON", kind="source_unreachable") from error


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follow nothing: what is sent is for the host that was named."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> None:
        return None


def _at(value: Any, path: str) -> Any:
    for key in filter(None, path.split(".")):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _time(at_us: int) -> datetime:
    return datetime.fromtimestamp(at_us / 1e6, UTC)


def _text(at_us: int) -> str:
    return _time(at_us).strftime("%Y-%m-%dT%H:%M:%SZ")

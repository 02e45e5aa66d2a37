"""Read data from outside the lake for ``externaldata``: files and web addresses, as columns of text.

Nothing is read unless the query's budget allows how its address begins, redirects included, so that whoever may ask
questions cannot make the server fetch what they please. What is read is bounded, and lives for one query. Formats are
csv, tsv, psv, txt, json, multijson and parquet, told by ``format`` or by the name's end; ``.gz`` and ``.zip`` are
opened. It does not convert values: the query does.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import stat
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from tidelake.errors import InvalidInputError, StorageError, UnavailableError
from tidelake.query.budget import Budget, Deadline

MAX_BYTES = 256 << 20  # of one address, before and after it is unpacked; larger data belongs in a table
MAX_PARQUET_BYTES = 1 << 30  # as Python's objects, of which few bytes in a file can make many
TIMEOUT_S = 60.0
PIECE_BYTES = 1 << 20
CELL_BYTES = 80  # of a text as a Python object
LOOK_ROWS = 10_000  # between looks at the clock
_SEPARATORS = {"csv": ",", "tsv": "\t", "psv": "|", "scsv": ";", "tsve": "\t"}
_FORMATS = (*_SEPARATORS, "txt", "raw", "json", "multijson", "parquet")


def read_external(
    columns: Sequence[str], addresses: Sequence[str], options: Mapping[str, Any], budget: Budget, deadline: Deadline
) -> pa.Table:
    """Return what the addresses hold, one after the other, as columns of text, in the time and memory that are left."""
    given = {name.lower(): value for name, value in options.items()}
    tables: list[pa.Table] = []
    for address in addresses:
        place = re.sub(r";(?:managed_identity|impersonate|sas).*$", "", address)
        name, data = _opened(place, _fetched(place, budget, deadline), str(given.get("zippattern") or "*"))
        kind = _format_of(name, given.get("format"))
        skip = str(given.get("ignorefirstrecord", "false")).lower() == "true"
        rows = _READERS[kind](data, columns, skip, kind)
        tables.append(_table(columns, rows, budget, deadline))
    return pa.concat_tables(tables)


def _fetched(address: str, budget: Budget, deadline: Deadline) -> bytes:
    _check_allowed(address, budget)
    limit = min(MAX_BYTES, budget.memory_bytes // 4, *(() if budget.read_bytes is None else (budget.read_bytes,)))
    scheme = urlsplit(address).scheme
    try:
        if scheme in ("http", "https"):
            opener = urllib.request.build_opener(_Redirects(budget))
            with opener.open(address, timeout=max(min(TIMEOUT_S, deadline.left), 0.01)) as answer:
                data = _all_of(answer.read1, limit, budget, deadline)
        else:
            with _regular_file(_path(address)) as file:
                data = _all_of(file.read, limit, budget, deadline)
    except (OSError, urllib.error.URLError) as error:
        raise StorageError(f"cannot read {address}: {error}", kind="external_unreadable") from error
    if len(data) > limit:
        raise UnavailableError("external data is too large: load it into a table", kind="read_budget", bytes=limit)
    return data


def _all_of(read: Callable[[int], bytes], limit: int, budget: Budget, deadline: Deadline) -> bytes:
    """Read to the end, piece by piece: who sends slowly is not waited for beyond the time that is left."""
    pieces, size = [], 0
    while size <= limit and (piece := read(PIECE_BYTES)):
        pieces.append(piece)
        size += len(piece)
        if deadline.left < 0:
            raise budget.out_of_time()
    return b"".join(pieces)


def _regular_file(path: str) -> io.BufferedReader:
    """Open a file; a pipe or a device, which might never end, is refused."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError("not a regular file")
    return os.fdopen(descriptor, "rb")


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follow a redirect only to where the budget allows."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        try:
            _check_allowed(newurl, self._budget)
        except InvalidInputError:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_allowed(address: str, budget: Budget) -> None:
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https", "file", ""):
        raise InvalidInputError(f"externaldata reads files and web addresses, not {address!r}", kind="external_refused")
    plain = "@" not in parts.netloc and "\\" not in address
    is_web = parts.scheme in ("http", "https")
    held = address if is_web else _path(address)
    for start in budget.external:
        allowed = start if urlsplit(start).scheme in ("http", "https") else _path(start)
        if plain and (held == allowed or held.startswith(allowed if allowed.endswith("/") else f"{allowed}/")):
            if is_web and ".." in unquote(parts.path).split("/"):
                continue
            return
    raise InvalidInputError(
        f"externaldata may not read {address!r}: allow it with budget={{'external': ['{_suggested(address)}']}}",
        kind="external_refused",
    )


def _suggested(address: str) -> str:
    return address.rpartition("/")[0] + "/"


def _path(address: str) -> str:
    """Return a file's real path, links followed, so that no name leads out of an allowed folder."""
    path = unquote(urlsplit(address).path) if address.startswith("file:") else address
    found = os.path.realpath(path)
    return f"{found}/" if address.endswith("/") else found


def _opened(address: str, data: bytes, pattern: str) -> tuple[str, bytes]:
    """Unpack what is packed, and give its name without the end that says so."""
    name = urlsplit(address).path
    try:
        if name.endswith(".gz"):
            opened = zlib.decompressobj(16 + zlib.MAX_WBITS)
            found = opened.decompress(data, MAX_BYTES)
            if opened.unconsumed_tail:
                raise UnavailableError("external data is too large once unpacked", kind="read_budget", bytes=MAX_BYTES)
            return name.removesuffix(".gz"), found
        if name.endswith(".zip"):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                inside = [each for each in archive.infolist() if fnmatchcase(each.filename, pattern)]
                if sum(each.file_size for each in inside) > MAX_BYTES:
                    raise UnavailableError(
                        "external data is too large once unpacked", kind="read_budget", bytes=MAX_BYTES
                    )
                names = [each.filename for each in inside] or [name.removesuffix(".zip")]
                return names[0], b"\n".join(archive.read(each) for each in inside)
    except (zlib.error, zipfile.BadZipFile) as error:
        raise InvalidInputError(f"cannot unpack {address}: {error}", kind="external_unreadable") from error
    return name, data


def _format_of(name: str, given: object) -> str:
    kind = str(given or name.rpartition(".")[2]).lower()
    if given and kind not in _FORMATS:
        raise InvalidInputError(f"externaldata reads {', '.join(_FORMATS)}, not {given!r}", kind="external_format")
    return kind if kind in _FORMATS else "csv"


def _table(
    columns: Sequence[str], rows: Iterator[Sequence[str | None]], budget: Budget, deadline: Deadline
) -> pa.Table:
    values: list[list[str | None]] = [[] for _ in columns]
    most = budget.memory_bytes // (CELL_BYTES * max(len(columns), 1))
    for number, row in enumerate(rows):
        if number % LOOK_ROWS == 0 and deadline.left < 0:
            raise budget.out_of_time()
        if number >= most:
            raise UnavailableError(
                "external data has too many rows: load it into a table", kind="memory_budget", rows=most
            )
        for at, held in enumerate(values):
            held.append(row[at] if at < len(row) else None)
    return pa.table([pa.array(held, pa.string()) for held in values], names=list(columns))


def _lines(data: bytes, columns: Sequence[str], skip: bool, kind: str) -> Iterator[Sequence[str | None]]:
    text = data.decode("utf-8-sig", "replace")
    if kind == "raw":
        yield (text,)
        return
    for at, line in enumerate(text.splitlines()):
        if line and not (skip and at == 0):
            yield (line,)


def _separated(data: bytes, columns: Sequence[str], skip: bool, kind: str) -> Iterator[Sequence[str | None]]:
    text = data.decode("utf-8-sig", "replace")
    try:
        for at, row in enumerate(csv.reader(io.StringIO(text), delimiter=_SEPARATORS[kind])):
            if row and not (skip and at == 0):
                yield row
    except csv.Error as error:
        raise InvalidInputError(f"not {kind}: {error}", kind="external_unreadable") from error


def _objects(data: bytes, columns: Sequence[str], skip: bool, kind: str) -> Iterator[Sequence[str | None]]:
    text = data.decode("utf-8-sig", "replace").strip()
    reader = json.JSONDecoder()
    at = 0
    try:
        while at < len(text):
            value, at = reader.raw_decode(text, at)
            while at < len(text) and text[at] in " \t\r\n,":
                at += 1
            for each in value if isinstance(value, list) else [value]:
                yield [_shown(each.get(column)) for column in columns] if isinstance(each, dict) else [_shown(each)]
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"not {kind}: {error}", kind="external_unreadable") from error


def _parquet(data: bytes, columns: Sequence[str], skip: bool, kind: str) -> Iterator[Sequence[str | None]]:
    try:
        file = pq.ParquetFile(io.BytesIO(data))
        if file.metadata.num_rows * max(len(columns), 1) * CELL_BYTES > MAX_PARQUET_BYTES:
            raise UnavailableError("external data is too large once unpacked", kind="read_budget", bytes=MAX_BYTES)
        table = file.read(columns=[name for name in columns if name in file.schema_arrow.names])
    except pa.ArrowException as error:
        raise InvalidInputError(f"not parquet: {error}", kind="external_unreadable") from error
    held = [table.column(name).to_pylist() if name in table.column_names else [None] * len(table) for name in columns]
    for row in zip(*held, strict=True):
        yield [_shown(value) for value in row]


def _shown(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str).strip('"')


_READERS: Mapping[str, Callable[[bytes, Sequence[str], bool, str], Iterator[Sequence[str | None]]]] = {
    **dict.fromkeys(_SEPARATORS, _separated),
    "txt": _lines, "raw": _lines, "json": _objects, "multijson": _objects, "parquet": _parquet,
}  # fmt: skip

"""Say what may stand at a place in a question: ``POST /v1/complete``.

::

    {"text": "obs.logs | where lev", "position": 20, "language": "kql"}
    {"from": 17, "to": 20, "options": [{"label": "level", "kind": "property", "detail": "string", "info": "ERROR, …"}]}

Tables, their columns and the paths in dynamic ones come from the catalog and its statistics; no row is read, and what a
token does not reach is not named. Positions count UTF-16 units, as editors do. It does not parse the question: it looks
at the words before the place.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.handle.table_handle import TableHandle
from tidelake.query.functions.registry import IN_SQL
from tidelake.query.kql.aggregates import AGGREGATES
from tidelake.query.kql.scalar_functions import FUNCTIONS
from tidelake.scan.field_statistics import FieldStatistics, field_statistics
from tidelake.server.call import Answer
from tidelake.server.doors.base import About, Asked, Door
from tidelake.server.page import words

LANGUAGES = ("kql", "sql", "promql")
MAX_TEXT = 100_000
MAX_OPTIONS = 200
MAX_TABLES = 4  # of a question, whose columns are offered
EXAMPLES, EXAMPLE_CHARACTERS = 5, 40
KEPT = 256  # tables, whose statistics are remembered

_WORD = re.compile(r"[\w$-]*$")
_PATH = re.compile(r"((?:[A-Za-z_]\w*\.)*)([\w-]*)$")
_NAMES = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?")
_COMPARED = re.compile(r"([A-Za-z_]\w*)\s*(?:==?|!=|=~|\bin\s*\(|<>)\s*([\"']?)([^\"'|\n()]*)$")
_AFTER_FROM = re.compile(r"\b(?:from|join)\s+[\w.]*$", re.IGNORECASE)
_QUOTED = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'")


@dataclass(frozen=True, slots=True)
class Option:
    """Something that may stand there."""

    label: str
    kind: str  # table, property, function, keyword, text
    detail: str = ""
    info: str = ""
    apply: str | None = None
    boost: int = 0

    def told(self) -> dict[str, Any]:
        """Return it as it is sent."""
        return {
            "label": self.label,
            "kind": self.kind,
            "detail": self.detail,
            "info": self.info,
            "apply": self.apply or self.label,
            "boost": self.boost,
        }


async def answer_complete(asked: Asked) -> Answer:
    """Answer with what may stand at a place."""
    text, position, language = _told(asked)
    before = text.encode("utf-16-le", "surrogatepass")[: position * 2].decode("utf-16-le", "replace")
    found = await asked.questions.looked(asked.grant, lambda: list(_options(asked, text, before, language)))
    word = _word_of(before)
    fitting = [each for each in found if word.lower() in each.label.lower()]
    fitting.sort(key=lambda each: (not each.label.lower().startswith(word.lower()), -each.boost))
    start = position - len(word.encode("utf-16-le")) // 2
    return Answer.json({"from": start, "to": position, "options": [each.told() for each in fitting[:MAX_OPTIONS]]})


def _word_of(before: str) -> str:
    if (compared := _COMPARED.search(before)) and compared[2]:
        return compared[3]
    found = _WORD.search(before)
    return found[0] if found else ""


def _options(asked: Asked, text: str, before: str, language: str) -> Iterator[Option]:
    match language:
        case "kql":
            return _kql(asked, text, before)
        case "sql":
            return _sql(asked, text, before)
        case _:
            return _promql(asked, before)


def _kql(asked: Asked, text: str, before: str) -> Iterator[Option]:
    stage = _QUOTED.sub(lambda quoted: " " * len(quoted[0]), before).rpartition(";")[2].rpartition("|")
    if not stage[1]:
        yield from _tables(asked, before)
        return
    if re.fullmatch(r"\s*[\w-]*", stage[2]):
        for at, (name, said) in enumerate(words.KQL_OPERATORS.items()):
            yield Option(name, "keyword", "operator", said, f"{name} ", 60 - at)
        return
    fields = _fields(asked, text)
    if (told := _COMPARED.search(before)) is not None:
        yield from _values(fields, told[1], is_open=bool(told[2]), quote='"')
        if told[2]:
            return
    yield from _columns(fields, before)
    for name, said in words.KQL_WORDS.items():
        yield Option(name, "keyword", "", said, boost=5)
    for name, said in _CALLS.items():
        own = words.KQL_FUNCTIONS.get(name)
        yield Option(name, "function", "()", own or said, f"{name}(", 3 if own else 0)


def _sql(asked: Asked, text: str, before: str) -> Iterator[Option]:
    if _AFTER_FROM.search(before):
        yield from _tables(asked, before)
        return
    fields = _fields(asked, text)
    if (told := _COMPARED.search(before)) is not None:
        yield from _values(fields, told[1], is_open=bool(told[2]), quote="'")
        if told[2]:
            return
    yield from _columns(fields, before)
    for name, said in words.SQL_WORDS.items():
        yield Option(name, "keyword", "", said, f"{name} ", 5)
    for name in dict.fromkeys((*words.SQL_FUNCTIONS, *IN_SQL)):
        yield Option(name, "function", "()", words.SQL_FUNCTIONS.get(name, ""), f"{name}(", 3)


def _promql(asked: Asked, before: str) -> Iterator[Option]:
    fields = _fields(asked, "prom_samples")
    if not re.search(r"\{[^}]*$", before):
        for name in fields.get("name", _NOTHING).distinct or ():
            yield Option(str(name), "property", "metric", boost=20)
        for name, said in words.PROM_FUNCTIONS.items():
            yield Option(
                name, "function", "()", said, f"{name}(" if name not in ("by", "without", "offset") else name, 5
            )
        return
    for each in fields.values():
        for path in each.paths:
            yield Option(path.path, "property", "label")


def _tables(asked: Asked, before: str) -> Iterator[Option]:
    """Yield the tables that are in sight; behind a namespace and a dot, what comes after it."""
    path = _PATH.search(before)
    space = path[1].rstrip(".") if path else ""
    for name in asked.lake.tables():
        if not asked.may_see(name):
            continue
        own, _, rest = name.partition(".")
        if space == own:
            yield Option(rest, "table", "table", boost=10)
        elif not space:
            yield Option(name, "table", "table", boost=10)


def _columns(fields: Mapping[str, FieldStatistics], before: str) -> Iterator[Option]:
    path = _PATH.search(before)
    parents = path[1].rstrip(".") if path else ""
    first, _, inside = parents.partition(".")
    if first and first in fields:
        yield from _paths(fields[first], inside)
        return
    for at, each in enumerate(fields.values()):
        yield Option(each.column.name, "property", str(each.column.type), _said(each), boost=40 - min(at, 20))


def _paths(known: FieldStatistics, inside: str) -> Iterator[Option]:
    """Yield what comes next on the paths of a dynamic column."""
    seen: set[str] = set()
    for path in known.paths:
        if inside and not path.path.startswith(f"{inside}."):
            continue
        rest = path.path[len(inside) + 1 :] if inside else path.path
        if rest in seen:
            continue
        seen.add(rest)
        said = "" if path.low is None else f"from {path.low:g} to {path.high:g}"
        yield Option(rest, "property", "path", said, boost=30)


def _values(fields: Mapping[str, FieldStatistics], name: str, *, is_open: bool, quote: str) -> Iterator[Option]:
    """Yield values that a column has, where there are few."""
    known = fields.get(name)
    for value in (known.distinct or ()) if known else ():
        if isinstance(value, str) and len(value) <= 200:
            told = value.replace("\\", "\\\\").replace(quote, f"\\{quote}" if quote == '"' else quote * 2)
            yield Option(value, "text", name, apply=told if is_open else f"{quote}{told}{quote}", boost=80)


def _said(known: FieldStatistics) -> str:
    """Return what statistics know of a column, in a line."""
    if known.distinct:
        shown = [str(each)[:EXAMPLE_CHARACTERS] for each in known.distinct[:EXAMPLES]]
        return ", ".join(shown) + (" …" if len(known.distinct) > EXAMPLES else "")
    if known.low is not None:
        return f"from {str(known.low)[:EXAMPLE_CHARACTERS]} to {str(known.high)[:EXAMPLE_CHARACTERS]}"
    return ", ".join(path.path for path in known.paths[:EXAMPLES])


def _fields(asked: Asked, text: str) -> dict[str, FieldStatistics]:
    """Return what is known of the columns of the tables that a text names, by name."""
    found: dict[str, FieldStatistics] = {}
    count = 0
    for name in dict.fromkeys(_NAMES.findall(text)):
        try:
            table = asked.table(name)
            known = _KNOWN.of(table)
        except (NotFoundError, InvalidInputError):
            continue
        for each in known:
            found.setdefault(each.column.name, each)
        count += 1
        if count == MAX_TABLES:
            break
    return found


class _Known:
    """What statistics know of tables' columns, by their snapshots, which never change."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[str, list[FieldStatistics]]] = OrderedDict()

    def of(self, table: TableHandle) -> Iterable[FieldStatistics]:
        """Return the columns of a table; of one of users, without statistics."""
        snapshot = table.snapshot
        if table.is_of_users:
            return field_statistics(snapshot.schema, [])
        key = f"{table.scope.table_id}/{table.scope.user}"
        found = self._kept.get(key)
        if found is not None and found[0] == snapshot.id:
            return found[1]
        extents = table.catalog.extents(table.scope, sequence=snapshot.sequence)
        known = field_statistics(snapshot.schema, extents)
        self._kept[key] = (snapshot.id, known)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return known


_KNOWN = _Known()


def _counted(least: int, most: int, result: str) -> str:
    count = f"{least}" if least == most else f"{least} or more"
    return f"{count} argument{'' if count == '1' else 's'}, gives {result}"


_CALLS = {name: _counted(each.least, each.most, each.result) for name, each in FUNCTIONS.items()} | {
    name: _counted(each.least, each.most, each.result) for name, each in AGGREGATES.items()
}


@dataclass(frozen=True, slots=True)
class _Nothing:
    distinct: tuple[Any, ...] | None = None


_NOTHING = _Nothing()


def _told(asked: Asked) -> tuple[str, int, str]:
    try:
        told = orjson.loads(asked.call.body)
        text, position, language = told["text"], told["position"], told.get("language", "kql")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInputError("a place has text, position and language", kind="bad_body") from error
    if not isinstance(text, str) or len(text) > MAX_TEXT or type(position) is not int or language not in LANGUAGES:
        raise InvalidInputError("a place has text, position and language", kind="bad_body")
    return text, max(0, min(position, len(text.encode("utf-16-le", "surrogatepass")) // 2)), language


DOORS = (
    Door(
        "/v1/complete",
        answer_complete,
        about=About(
            "What may stand at a place in a question.",
            body={
                "text": "the question so far",
                "position": "the place, in UTF-16 units",
                "language": "kql, sql or promql",
            },
        ),
    ),
)

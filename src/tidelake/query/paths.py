"""Ask scans for paths of dynamic columns instead of the columns, where a query needs no more of them.

Where every use of a dynamic column of a table is ``tide_get(column, path)``, each becomes a column of the scan: texts,
numbers and booleans as such, whether a text passes a test, and JSON only for what has no type of its own. The
in-process engine then sees typed columns, and extents that keep paths apart read nothing else. Where every use of a
text column is its template, that becomes a column of the scan, too. It does not plan or read.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from sqlglot import exp

from tidelake.model.path_value import TEMPLATE, PathForm, PathValue
from tidelake.model.predicate import (
    Equals,
    InSet,
    Leaf,
    StartsWith,
    StringContains,
    StringHas,
    StringMatches,
)
from tidelake.model.schema import DataType
from tidelake.query.conjuncts import pushed
from tidelake.query.counting import with_rows_counted
from tidelake.query.prepared import Prepared
from tidelake.query.pushdown import Ask

# Functions of a dynamic value that a column of one type answers, by that column's form.
_STRICT: Mapping[str, PathForm] = {"tide_text": "text", "tide_number": "number", "tide_flag": "flag"}
# Functions that convert: what the first form has is the answer, and of the second they are asked as before.
_CONVERTING: Mapping[str, tuple[PathForm, PathForm]] = {
    "tide_shown": ("plain", "json_but_plain"),
    "tide_to_string_from_dynamic": ("plain", "json_but_plain"),
    "tide_as_real": ("number", "json_but_numbers"),
    "tide_to_real_from_dynamic": ("number", "json_but_numbers"),
}
_TEXTS = ("tide_text", "tide_shown", "tide_to_string_from_dynamic")
_TEMPLATES = ("tide_message_template", "tide_template_id")
_TESTS = (Equals, InSet, StringHas, StringContains, StartsWith, StringMatches)
_TEST_NODES = (exp.EQ, exp.In, exp.Like, exp.ILike, exp.RegexpLike, exp.StartsWith, exp.Contains, exp.Anonymous)
_PREFIX = "tide:"
_STAND_IN = "x"
# Columns and paths that a name tells apart as they are. Engines take letters of either case for the same, and a colon
# may stand in a column or in a path.
_PLAIN = re.compile(r"[a-z0-9_. -]*")

_Use: TypeAlias = tuple[str, str]  # the name of a reference, and a dynamic column of it


def with_paths_apart(prepared: Prepared) -> Prepared | None:
    """Return the same query with paths in place of dynamic columns; None if it needs none of them alone."""
    asks_templates = any(_is_template(call) for call in prepared.tree.find_all(exp.Anonymous))
    wanted = {
        (ask.reference.name, name): ask
        for ask in prepared.asks
        for name in ask.columns
        if (kind := ask.reference.types[name]).logical is None
        and (kind.kind == "dynamic" or (kind.kind == "string" and asks_templates))
    }
    if not wanted:
        return None
    tree = prepared.tree.copy()
    uses: dict[_Use, list[exp.Expr]] = {}
    whole: set[_Use] = set()
    for column in tree.find_all(exp.Column):
        use = _use_of(column)
        if use not in wanted:
            continue
        if _is_read_at_path(column) or _is_template(column.parent):
            uses.setdefault(use, []).append(column.parent)  # type: ignore[arg-type]
        else:
            whole.add(use)
    columns: dict[str, dict[PathValue, None]] = {}
    gone: dict[str, set[str]] = {}
    for use, calls in uses.items():
        if use in whole:
            continue
        reference, name = use
        gone.setdefault(reference, set()).add(name)
        for call in calls:
            for each in _put_columns(call, wanted[use], name):
                columns.setdefault(reference, {})[each] = None
    if not columns:
        return None
    asks = tuple(_narrowed(ask, gone, columns) for ask in prepared.asks)
    return with_rows_counted(
        replace(prepared, tree=tree, asks=asks, rendered={}, known={}, plans={}, answered={}, apart=None)
    )


def _narrowed(ask: Ask, gone: Mapping[str, set[str]], columns: Mapping[str, Mapping[PathValue, None]]) -> Ask:
    name = ask.reference.name
    if name not in columns:
        return ask
    left = tuple(column for column in ask.columns if column not in gone[name])
    return replace(ask, columns=left, paths=tuple(columns[name]))


def _use_of(column: exp.Column) -> _Use:
    """Return the reference that a column belongs to, and its name; an empty reference if it is of no table."""
    node: exp.Expr = column
    while (select := node.find_ancestor(exp.Select)) is not None:
        for source in _sources(select):
            if source.alias_or_name == column.table:
                return (source.name, column.name) if isinstance(source, exp.Table) else ("", column.name)
        node = select
    return "", column.name


def _sources(select: exp.Select) -> Iterator[exp.Expr]:
    if (from_ := select.args.get("from_")) is not None:
        yield from_.this
    for join in select.args.get("joins") or []:
        yield join.this


def _is_read_at_path(column: exp.Column) -> bool:
    call = column.parent
    if not isinstance(call, exp.Anonymous) or str(call.this).lower() != "tide_get" or call.expressions[0] is not column:
        return False
    path = call.expressions[1]
    return isinstance(path, exp.Literal) and bool(path.is_string) and bool(path.this) and "[" not in str(path.this)


def _is_template(call: exp.Expr | None) -> bool:
    is_call = isinstance(call, exp.Anonymous) and len(call.expressions) == 1
    return is_call and str(call.this).lower() in _TEMPLATES  # type: ignore[union-attr]


def _put_columns(call: exp.Expr, ask: Ask, name: str) -> Sequence[PathValue]:
    """Put columns of the scan in the place of a path's value; return those columns."""
    alias = call.expressions[0].table
    path = TEMPLATE if _is_template(call) else str(call.expressions[1].this)
    around = call.parent
    asks = str(around.this).lower() if isinstance(around, exp.Anonymous) and len(around.expressions) == 1 else ""

    begin = _name_of(name, path)

    def value(form: PathForm) -> PathValue:
        return PathValue(ask.reference.spelled[name], path, form, f"{begin}{form}")

    def column(each: PathValue) -> exp.Column:
        return exp.column(exp.to_identifier(each.name, quoted=True), table=exp.to_identifier(alias, quoted=True))

    if path == TEMPLATE:
        found = value("template")
        is_itself = str(call.this).lower() == "tide_message_template"
        (call if is_itself else call.expressions[0]).replace(column(found))  # a template has itself as its template
        return [found]
    asked = _test_of(around) if around is not None and (asks in _TEXTS) else None
    if asked is not None:
        node, test = asked
        digest = hashlib.blake2b(repr(test).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        passes = value("test")._replace(name=f"{begin}{digest}", test=test)
        if asks == "tide_text":
            node.replace(column(passes))
            return [passes]
        other = value("json_but_texts")
        call.replace(column(other))
        node.replace(exp.Coalesce(this=column(passes), expressions=[node.copy()]))
        return [passes, other]
    if around is not None and asks in _STRICT:
        found = value(_STRICT[asks])
        around.replace(column(found))
        return [found]
    if around is not None and asks in _CONVERTING:
        typed, other = map(value, _CONVERTING[asks])
        again = exp.Anonymous(this=around.this, expressions=[column(other)])
        around.replace(exp.Coalesce(this=column(typed), expressions=[again]))
        return [typed, other]
    found = value("json")
    call.replace(column(found))
    return [found]


def _name_of(column: str, path: str) -> str:
    """Return how the names of columns for a path begin: unlike those of any other path, whatever the case."""
    plain = f"{_PREFIX}{column}:{path}:"
    if _PLAIN.fullmatch(column) and _PLAIN.fullmatch(path):
        return plain
    return f"{plain}{hashlib.blake2b(repr((column, path)).encode(), digest_size=8).hexdigest()}:"


def _test_of(text: exp.Expr) -> tuple[exp.Expr, Leaf] | None:
    """Return the test that the text of a path is put to, if a scan can answer it exactly."""
    node = text.parent
    if not isinstance(node, _TEST_NODES) or sum(1 for _ in node.find_all(exp.Column)) != 1:
        return None
    stood_in = exp.column(_STAND_IN, quoted=True)
    plain = node.copy().transform(lambda each: stood_in.copy() if each == text else each)
    found = pushed(plain, {_STAND_IN: DataType("string")}, {_STAND_IN: _STAND_IN})
    if found is None or not found.exact or not isinstance(found.predicate, _TESTS):
        return None
    return node, found.predicate

"""Give every operation on a dynamic value the plain value it needs.

A dynamic value that is compared with text is taken as text, with a number as a number; a value of another type is then
null. Grouped, made distinct or joined on, it is taken as the text it would be shown as. What has no plain meaning, such
as an order of unlike values, is a QueryError that says how to write it. It does not change what a tree gives otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.scope import traverse_scope

from tidelake.errors import InvalidInputError
from tidelake.model.times import parse_time_ns, time_text
from tidelake.query import decimals
from tidelake.query.bind import Bound
from tidelake.query.constants import constant_of
from tidelake.query.functions.declaration import OURS
from tidelake.query.long_lists import LONGS, TEXTS, values_of, write_out
from tidelake.query.sql.functions import CALLS
from tidelake.query.sql.parse import error_of
from tidelake.query.sql.tokens import DIALECT

SHOWN = "tide_shown"
_EVENINGS = 32  # lists of rows and unions, one after the other, that are given the digits they share

# What our calls give; a call that is not here is left to the engine.
_GIVES = {
    "tide_get": exp.DType.VARIANT,
    "tide_text": exp.DType.TEXT,
    "tide_number": exp.DType.DOUBLE,
    "tide_flag": exp.DType.BOOLEAN,
    "tide_time": exp.DType.TIMESTAMPTZ,
    SHOWN: exp.DType.TEXT,
    "tide_has": exp.DType.BOOLEAN,
    TEXTS: exp.DType.TEXT,
    LONGS: exp.DType.BIGINT,
}
_KINDS = {
    "int": exp.DType.INT, "long": exp.DType.BIGINT, "real": exp.DType.DOUBLE, "bool": exp.DType.BOOLEAN,
    "text": exp.DType.TEXT, "date": exp.DType.DATE, "time": exp.DType.TIMESTAMPTZ, "interval": exp.DType.INTERVAL,
}  # fmt: skip
_TEXTS = exp.DataType.TEXT_TYPES
_NUMBERS = exp.DataType.NUMERIC_TYPES
_TIMES = exp.DataType.TEMPORAL_TYPES
_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_TEXT_USES = (
    exp.Like, exp.ILike, exp.RegexpLike, exp.RegexpILike, exp.Lower, exp.Upper, exp.Length, exp.Trim, exp.Substring,
    exp.Concat, exp.ConcatWs, exp.DPipe, exp.Replace, exp.RegexpExtract, exp.RegexpReplace, exp.Split, exp.StartsWith,
    exp.EndsWith, exp.Contains, exp.Initcap, exp.Left, exp.Right, exp.StrPosition, exp.Reverse,
)  # fmt: skip
_NUMBER_USES = (
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.Sum, exp.Avg, exp.Stddev, exp.StddevSamp,
    exp.StddevPop, exp.Variance, exp.VariancePop, exp.Abs, exp.Round, exp.Ceil, exp.Floor, exp.Sqrt, exp.Ln, exp.Pow,
    exp.Median, exp.ApproxQuantile, exp.Quantile, exp.PercentileCont, exp.Greatest, exp.Least,
)  # fmt: skip
_TEXT_CALLS = ("tide_has", "tide_has_any", "tide_has_all")
_TIME = re.compile(r"\s*(\d{4})(?:-(\d{1,2})(-\d{1,2}(?:[T ]\s*\d.*?)?)?)?\s*")
_ORDERED = (exp.Min, exp.Max, exp.Ordered, exp.ArgMax, exp.ArgMin)


def adapt(bound: Bound, text: str) -> exp.Query:
    """Return the tree with plain values where operations need them."""
    tree = _typed(bound.tree, bound)
    if _written_out(tree):
        tree = _typed(tree, bound)
    for _ in range(_EVENINGS):
        if not decimals.even_out(tree):
            break
        tree = _typed(tree, bound)
    choices = [node for node in tree.find_all(exp.Coalesce, exp.If, exp.Case) if _unify(node)]
    if choices:
        tree = _typed(tree, bound)
    while _regrouped(tree):
        tree = _typed(tree, bound)
    for node in list(tree.walk(bfs=False)):
        _adapt_node(node, text)
    for node in reversed(list(tree.find_all(exp.Sum, exp.Avg))):
        _total(node)
    return tree


def _typed(tree: exp.Query, bound: Bound) -> exp.Query:
    return annotate_types(tree, bound.schema, expression_metadata=_METADATA, dialect=DIALECT)


def _give_type(annotator: Any, call: exp.Anonymous) -> exp.Expr:
    name = str(call.this)
    known: Any = _GIVES.get(name, exp.DType.UNKNOWN)
    if name.startswith(OURS):
        gives = CALLS[name.removeprefix(OURS)].returns
        of_sides = decimals.of_operation(name.removeprefix(OURS), call.expressions)
        first = call.expressions[0].type if of_sides is None and gives == "same" and call.expressions else of_sides
        known = first if first is not None else _KINDS.get(gives or "", exp.DType.UNKNOWN)
    found: exp.Expr = annotator._set_type(call, known)
    return found


_KNOWN: Any = Dialect.get_or_raise(DIALECT).EXPRESSION_METADATA
_METADATA: Any = {**_KNOWN, **decimals.annotators(_KNOWN), exp.Anonymous: {"annotator": _give_type}}


def _written_out(tree: exp.Query) -> bool:
    """Write out the long lists that meet a value of another type, which engines convert; say whether there was one."""
    found = False
    for node in tree.find_all(exp.In):
        if (values := values_of(node)) is not None:
            alike = _TEXTS if node.expressions[0].this == TEXTS else exp.DataType.SIGNED_INTEGER_TYPES
            if not _is_dynamic(node.this) and (node.this.type is None or node.this.type.this not in alike):
                write_out(node, values)
                found = True
    return found


def _is_dynamic(node: exp.Expr | None) -> bool:
    return node is not None and node.type is not None and node.type.this is exp.DType.VARIANT


def _regrouped(tree: exp.Query) -> bool:
    """Take the dynamic values that one select groups by, or tells apart, as text; say whether there was one."""
    for scope in traverse_scope(tree):
        select = scope.expression
        if not isinstance(select, exp.Select):
            continue
        group = select.args.get("group")
        keys = [key for key in (group.expressions if group is not None else []) if _is_dynamic(key)]
        if keys:
            for key in [key.copy() for key in keys]:
                _replace_all(select, key)
            return True
        parent = select.parent
        apart = select.args.get("distinct") or (isinstance(parent, exp.SetOperation) and parent.args.get("distinct"))
        outputs = [each for each in select.expressions if _is_dynamic(each.unalias())] if apart else []
        for each in outputs:
            _wrap(each.unalias(), SHOWN)
        if outputs:
            return True
    return False


def _replace_all(select: exp.Select, key: exp.Expr) -> None:
    """Take a key as text wherever a select names it after grouping."""
    for clause in ("expressions", "group", "having", "order", "qualify"):
        value = select.args.get(clause)
        for part in value if isinstance(value, list) else [value] if value is not None else []:
            for node in list(part.find_all(type(key))):
                if node == key:
                    _wrap(node, SHOWN)


def _wrap(node: exp.Expr, name: str) -> None:
    call = exp.Anonymous(this=name, expressions=[node.copy()])
    node.replace(call)


def _adapt_node(node: exp.Expr, text: str) -> None:
    match node:
        case exp.Cast():
            if _is_dynamic(node.this):
                _cast(node)
        case exp.Between():
            _wrap_as(node.this, node.args["low"])
            _check_times([node.this, node.args["low"], node.args["high"]], text)
        case exp.In():
            if node.expressions:
                _wrap_as(node.this, node.expressions[0])
                _check_times([node.this, *node.expressions], text)
            elif (query := node.args.get("query")) is not None and _is_dynamic(node.this):
                _wrap(node.this, "tide_text" if not _outputs_number(query) else "tide_number")
        case exp.Count() if isinstance(node.this, exp.Distinct):
            _wrap_children(node.this, SHOWN)
        case exp.Not() | exp.And() | exp.Or() | exp.Where():
            _wrap_children(node, "tide_flag")
        case exp.If() if _is_dynamic(node.this):
            _wrap(node.this, "tide_flag")
        case exp.Anonymous() if str(node.this) in _TEXT_CALLS:
            _wrap_children(node, "tide_text")
        case exp.Anonymous() if (taken := _taken_as(str(node.this))) is not None:
            _wrap_children(node, taken)
        case _ if isinstance(node, _COMPARED):
            _compare(node, text)
        case _ if isinstance(node, _TEXT_USES):
            _wrap_children(node, "tide_text")
        case _ if isinstance(node, _NUMBER_USES):
            _wrap_children(node, "tide_number")
        case _ if isinstance(node, _ORDERED):
            _refuse_order(node, text)


def _taken_as(name: str) -> str | None:
    function = CALLS.get(name.removeprefix(OURS))
    return function.takes if function is not None else None


def _total(node: exp.Expr) -> None:
    """Give sums and means of decimals the digits that Spark gives them, on every engine."""
    known = decimals.digits_of(node.this) if decimals.is_decimal(node.this) else None
    if known is None:
        return
    precision, scale = known
    more = (10, 0) if isinstance(node, exp.Sum) else (4, 4)
    whole = node
    while isinstance(whole.parent, exp.Window | exp.Filter) and whole.arg_key == "this":
        whole = whole.parent
    digits = f"DECIMAL({min(38, precision + more[0])}, {min(38, scale + more[1])})"
    whole.replace(exp.cast(whole.copy(), digits))


def _wrap_children(node: exp.Expr, name: str) -> None:
    for child in list(_operands(node)):
        if _is_dynamic(child):
            _wrap(child, name)


def _operands(node: exp.Expr) -> Iterator[exp.Expr]:
    for value in node.args.values():
        yield from (each for each in (value if isinstance(value, list) else [value]) if isinstance(each, exp.Expr))


def _compare(node: exp.Expr, text: str) -> None:
    left, right = node.this, node.expression
    if _is_dynamic(left) and _is_dynamic(right):
        if not isinstance(node, exp.EQ | exp.NEQ | exp.NullSafeEQ | exp.NullSafeNEQ):
            raise _unordered(left, text)
        _wrap(left, SHOWN)
        _wrap(right, SHOWN)
    else:
        _check_times([left, right], text)
        _wrap_as(left, right)
        _wrap_as(right, left)


def _check_times(sides: Sequence[exp.Expr], text: str) -> None:
    """Take a text that meets a time as one, and refuse what cannot be: engines would find nothing, or fail."""
    times = [side for side in sides if side.type is not None and side.type.this in _TIMES]
    for side in sides if times else ():
        if isinstance(times[0], exp.Column) and _is_bare_number(side):
            raise error_of(
                text, times[0], f"a time cannot be compared with a number: {_as_time(side)}", kind="bad_time"
            )
        if not isinstance(side, exp.Literal) or not side.is_string:
            continue
        written = _TIME.fullmatch(str(side.this))
        if written is None:
            raise error_of(text, times[0], f"{side.this!r} is not a time such as 2026-01-31 12:00:00", kind="bad_time")
        if times[0].type is not None and times[0].type.this is exp.DType.TIMESTAMPTZ:
            year, month, rest = written.groups()
            whole = exp.Literal.string(f"{year}-{month or '01'}{rest or '-01'}")
            side.replace(exp.cast(whole, "timestamp", dialect=DIALECT))


def _is_bare_number(node: exp.Expr) -> bool:
    """Whether this is a number as it is written, or a column of numbers."""
    inner = node.this if isinstance(node, exp.Neg | exp.Paren) else node
    is_number = node.type is not None and node.type.this in _NUMBERS
    return is_number and isinstance(inner, exp.Literal | exp.Column)


def _as_time(number: exp.Expr) -> str:
    """Return how to write a number as the time that it probably stands for."""
    value = constant_of(number)
    functions = "timestamp_seconds(…), timestamp_millis(…) or timestamp_micros(…)"
    if not isinstance(value, int):
        return f"write {functions}"
    try:
        return f"write '{time_text(parse_time_ns(value))}', or {functions}"
    except InvalidInputError:
        return f"write {functions}"


def _wrap_as(node: exp.Expr, other: exp.Expr) -> None:
    """Take a dynamic value as the type of what it meets."""
    if _is_dynamic(node) and not _is_dynamic(other):
        _wrap(node, _plain_call(other))


def _plain_call(other: exp.Expr) -> str:
    kind = other.type.this if other.type is not None else None
    if kind in _NUMBERS:
        return "tide_number"
    if kind is exp.DType.BOOLEAN:
        return "tide_flag"
    return "tide_time" if kind in _TIMES else "tide_text"


def _unify(node: exp.Expr) -> bool:
    """Give the branches of a choice one type where some are plain; say whether one was dynamic."""
    branches = [each for each in _branches(node) if each is not None]
    plain = [each for each in branches if not _is_dynamic(each) and not isinstance(each, exp.Null)]
    mixed = [each for each in branches if _is_dynamic(each)] if plain else []
    for each in mixed:
        call = _plain_call(plain[0])
        _wrap(each, SHOWN if call == "tide_text" else call)
    return bool(mixed)


def _branches(node: exp.Expr) -> list[exp.Expr | None]:
    match node:
        case exp.Coalesce():
            return [node.this, *node.expressions]
        case exp.Case():
            return [*(each.args.get("true") for each in node.args["ifs"]), node.args.get("default")]
        case _:
            return [node.args.get("true"), node.args.get("false")]


def _outputs_number(query: exp.Expr) -> bool:
    inner = query.unnest() if isinstance(query, exp.Subquery) else query
    outputs = inner.selects if isinstance(inner, exp.Query) else []
    return bool(outputs) and outputs[0].type is not None and outputs[0].type.this in _NUMBERS


def _cast(node: exp.Cast) -> None:
    kind = node.to.this
    if kind in _TEXTS:
        name = SHOWN
    elif kind in exp.DataType.INTEGER_TYPES:
        name = "tide_as_long"
    elif kind in _NUMBERS:
        name = "tide_as_real"
    elif kind is exp.DType.BOOLEAN:
        name = "tide_as_bool"
    elif kind in _TIMES:
        name = "tide_as_time"
    else:
        return
    if name == SHOWN:
        node.replace(exp.Anonymous(this=name, expressions=[node.this.copy()]))
    else:
        _wrap(node.this, name)


def _refuse_order(node: exp.Expr, text: str) -> None:
    for child in _operands(node):
        if _is_dynamic(child):
            raise _unordered(child, text)


def _unordered(node: exp.Expr, text: str) -> Exception:
    shown = node.expressions[1].this if isinstance(node, exp.Anonymous) else node.alias_or_name
    message = f"{shown!r} is dynamic and has no order: say as what, such as {shown}::double or {shown}::string"
    return error_of(text, node, message, kind="type_mismatch")

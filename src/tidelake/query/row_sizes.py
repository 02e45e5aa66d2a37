"""Put guards where a query makes values whose size only its rows tell, such as ``repeat(message, n)``.

An engine makes such a value whole, outside of its account of memory, and hears no interrupt meanwhile. A guard stands
around an argument and looks at the others too; it fails before anything large is made. Joining texts makes little at a
time, so it is only guarded in a query that does it often: twenty steps that double a text make a million of it. Sizes
that the text tells are judged earlier, in ``sql.sizes``. It does not know how an engine writes a guard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sqlglot import exp

from tidelake.errors import QueryError
from tidelake.query.functions.sized import COUNT, ITEMS, JOINED, REPLACED

FEW = 16  # so often a text may be repeated unseen
NARROW = 4_096  # so wide a text may be made unseen
KQL_TIMES = 1_024  # to which KQL cuts how often a text is repeated
MANY_JOINS = 10  # of texts, from which on each is guarded
SMALL = 12  # nodes of an expression that is written twice for its size
MAX_NESTED = 3  # guards within what a guard measures, since each is written twice

_ONE, _WIDEST, _NUMBER = (exp.Literal.string("x" * size) for size in (1, 4, 8))  # texts of as many bytes
_JOINS = (exp.DPipe, exp.Concat, exp.ConcatWs)
_JOIN_NAMES = ("tide_strcat", "tide_strcat_delim", "tide_sql_concat", "tide_sql_concat_ws")
_GUARDS = (COUNT, ITEMS, REPLACED, JOINED)

Guard = tuple[str, exp.Expr, list[exp.Expr]]


def guard_sizes(tree: exp.Query) -> None:
    """Put guards into a tree."""
    joins: list[exp.Expr] = []
    for node in reversed(list(tree.find_all(exp.Func, exp.DPipe, exp.Anonymous))):  # inner ones before outer ones
        if _is_join(node):
            joins.append(node)
        elif (found := _guarded(node)) is not None:
            name, guarded, others = found
            _put(name, guarded, others)
    if len(joins) >= MANY_JOINS:
        for join in joins:
            if not _is_join(join.parent):
                parts = [part for part in _parts(join) if _is_small(part) and not isinstance(part, exp.Literal)]
                if parts:
                    _put(JOINED, parts[0], parts[1:])


def _guarded(node: exp.Expr) -> Guard | None:
    """Return the guard that a call needs: its name, the argument it stands around, and what else it looks at."""
    match node:
        case exp.Repeat():
            return _repeated(node.this, node.args.get("times"))
        case exp.Space():
            return _repeated(_ONE, node.this)
        case exp.GenerateSeries():
            start, end, step = (node.args.get(key) for key in ("start", "end", "step"))
            if _is_whole(start) and _is_whole(end) and (step is None or _is_whole(step)):
                return _listed(start, end, step or exp.Literal.number(1))
        case exp.RegexpReplace():
            return _replaced(node.this, _ONE, node.args.get("replacement"))
        case exp.Anonymous(this=str() as name, expressions=given):
            return _guarded_call(name, given)
    return None


def _guarded_call(name: str, given: Sequence[exp.Expr]) -> Guard | None:
    match name, given:
        case "tide_sql_repeat", [text, times]:
            return _repeated(text, times)
        case "tide_strrep", [text, times, *_]:
            found = _repeated(text, times)
            return None if found is None else (*found[:2], [*found[2], exp.Literal.number(KQL_TIMES)])
        case (("tide_sql_lpad" | "tide_sql_rpad"), [_, width, *_]):
            is_narrow = isinstance(width, exp.Literal) and _number(width) <= NARROW
            return None if is_narrow else (COUNT, width, [_WIDEST])
        case (("tide_sql_space" | "tide_sql_randstr"), [times, *_]):
            return _repeated(_ONE, times)
        case "tide_sql_array_repeat", [item, times]:
            return _repeated(_NUMBER if _is_whole(item) else item, times)
        case (("tide_sql_replace" | "tide_replace"), [text, sought, put]):
            return _replaced(text, sought, put)
        case "tide_replace_regex", [text, _, put]:
            return _replaced(text, _ONE, put)
        case "tide_range_long", [start, end, step]:
            found = _listed(start, end, step)
            return None if found is None else (*found[:2], [*found[2], exp.true()])
        case _:
            return None


def _repeated(text: exp.Expr, times: exp.Expr | None) -> Guard | None:
    if times is None or (isinstance(times, exp.Literal) and (isinstance(text, exp.Literal) or _number(times) <= FEW)):
        return None
    return COUNT, times, [text]


def _listed(start: exp.Expr | None, end: exp.Expr | None, step: exp.Expr) -> Guard | None:
    if start is None or end is None or all(isinstance(each, exp.Literal) for each in (start, end, step)):
        return None
    return ITEMS, end, [start, step]


def _replaced(text: exp.Expr, sought: exp.Expr, put: exp.Expr | None) -> Guard | None:
    if put is None or (isinstance(put, exp.Literal) and len(str(put.this)) <= FEW):
        return None
    return REPLACED, text, [sought, put]


def _put(name: str, guarded: exp.Expr, others: Sequence[exp.Expr]) -> None:
    """Put a guard around an argument."""
    if max(map(_nested, [guarded, *others])) > MAX_NESTED:
        raise QueryError(
            "texts are repeated within texts that are repeated too often: use a subquery for each", kind="too_large"
        )
    guard = exp.Anonymous(this=name, expressions=[])
    guard.type = guarded.type
    guarded.replace(guard)
    guard.set("expressions", [guarded, *(each.copy() for each in others)])


def _nested(node: exp.Expr) -> int:
    return sum(str(each.this) in _GUARDS for each in node.find_all(exp.Anonymous))


def _is_join(node: exp.Expr | None) -> bool:
    return isinstance(node, _JOINS) or (isinstance(node, exp.Anonymous) and str(node.this) in _JOIN_NAMES)


def _parts(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield what a chain of joins puts together."""
    stack = [node]
    while stack:
        each = stack.pop()
        if not _is_join(each):
            yield each
            continue
        stack.extend(reversed([each.left, each.right] if isinstance(each, exp.DPipe) else each.expressions))


def _is_small(node: exp.Expr) -> bool:
    return sum(1 for _ in zip(range(SMALL), node.walk(), strict=False)) < SMALL and not _nested(node)


def _number(node: exp.Literal) -> float:
    return float(node.this) if not node.is_string else 0.0


def _is_whole(node: exp.Expr | None) -> bool:
    kind = None if node is None or node.type is None else node.type.this
    return kind in exp.DataType.INTEGER_TYPES

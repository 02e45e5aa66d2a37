"""Read SQL, in Spark's dialect, into a tree that both engines run.

Names are found whatever their case, as in Spark. A table may be followed by the time or the snapshot it is wanted at::

    FROM logs TIMESTAMP AS OF '2026-01-01'   FROM logs FOR SYSTEM_TIME AS OF '2026-01-01'   FROM logs VERSION AS OF 41

What is inside a dynamic column is written ``attributes["http.status"]``, ``attributes:http.status``,
``attributes['a']['b']`` or ``attributes.a.b``. A mistake is a QueryError that shows the place. It does not know what
tables there are: see ``bind``.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection
from datetime import datetime
from typing import Any, cast

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from tidelake.errors import QueryError
from tidelake.model.lexer import did_you_mean, error_at
from tidelake.query.functions.declaration import OURS
from tidelake.query.functions.registry import IN_SQL
from tidelake.query.long_lists import put_lists
from tidelake.query.sql.guard import refusal_of
from tidelake.query.sql.shape import shaped
from tidelake.query.sql.tokens import DIALECT, parse_tokens, tokens_of, word_for_time

MAX_TEXT = 1_000_000  # characters: more than any query a person wrote, and as many as KQL takes

_STATEMENTS = ("select", "with", "from", "values", "union")
_TAKEN = {"when", "then", "else", "end", "case", "for", "on", "between", "and", "or", "not", "in", "is", "as"}
_TIMES = (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ, exp.DType.TIMESTAMPNTZ)
# Of functions that ask chance, a place or the clock, also those that no engine here has yet.
_BY_CHANCE = re.compile(
    "rand|uuid|new_guid|newid|shuffle|monotonic|partition_?id|sample"
    "|local_?time|current_?(?:time|date)(?!zone)|utc_?(?:time|date)|sysdate",
    re.IGNORECASE,
)
_NOW = (exp.CurrentTimestamp, exp.CurrentDate)
_PLAIN_KEY = re.compile(r"[^\[\]]+")

logging.getLogger("sqlglot").addHandler(logging.NullHandler())  # what it cannot read, it would print


def parse_sql(text: str, columns: Collection[str] = ()) -> exp.Query:
    """Return the tree of one query, or a QueryError with the place of the mistake.

    A word in double quotes that is one of ``columns`` is that column; any other is text.
    """
    try:
        tokens, lists = tokens_of(text, columns)
        trees = parse_tokens(tokens, text)
    except QueryError:
        raise
    except ParseError as error:
        raise _syntax_error(text, error) from None
    except TokenError:
        raise _open_quote(text) from None
    except RecursionError:
        raise too_deep() from None
    except (IndexError, KeyError, AttributeError, TypeError, ValueError) as error:  # builders that count on arguments
        raise QueryError("a function is given too few arguments, or other ones than it takes", kind="syntax") from error
    if len(trees) != 1:
        raise QueryError(f"expected one query, found {len(trees)}" if trees else "the query is empty", kind="syntax")
    (tree,) = trees
    if isinstance(tree, exp.Subquery):
        tree = tree.unnest()
    if not isinstance(tree, exp.Select | exp.SetOperation | exp.Values):
        raise error_at(text, len(text) - len(text.lstrip()), _not_a_query(text), kind="syntax")
    _check_whole(tree, text)
    if (refusal := refusal_of(tree, IN_SQL)) is not None:
        raise error_of(text, refusal.node, refusal.message, kind=refusal.kind)
    put_lists(tree, lists)
    query = cast(exp.Query, shaped(tree))
    _name_outputs(query)
    return cast(exp.Query, query.transform(_own_calls, copy=False).transform(_words, copy=False))


def too_deep() -> QueryError:
    """Return the error that a query is nested further than it can be followed."""
    return QueryError(
        "the query is nested too deeply, or one expression has too many parts: use in (…), or several steps",
        kind="too_deep",
    )


def check_text(text: str) -> None:
    """Refuse a text that is too long to be planned, or not Unicode, which no engine can be given."""
    if len(text) > MAX_TEXT:
        raise QueryError("the query is too long", letters=len(text), limit=MAX_TEXT, line=1, column=1)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        plain = text.encode("utf-8", "replace").decode()  # one letter for one, so that places stay
        raise error_at(plain, error.start, "a character that is not Unicode", kind="syntax") from None


def with_clock(tree: exp.Query, now: datetime) -> exp.Query:
    """Put one time in the place of every ``now()`` and ``current_date()``, so that engines agree."""

    def fixed(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.CurrentTimestamp):
            return exp.cast(exp.Literal.string(now.isoformat(sep=" ")), "timestamp", dialect=DIALECT)
        if isinstance(node, exp.CurrentDate):
            return exp.cast(exp.Literal.string(now.date().isoformat()), "date", dialect=DIALECT)
        return node

    return cast(exp.Query, tree.transform(fixed, copy=False))


def asks_the_time(tree: exp.Query) -> bool:
    """Return whether a query's meaning depends on when it is asked."""
    return tree.find(*_NOW) is not None


def is_by_chance(tree: exp.Query) -> bool:
    """Return whether a query may give other rows each time that it is asked of the same ones.

    Where the clock was put in already, see ``with_clock``, it is not found here: ``asks_the_time`` finds it before.
    """
    if tree.find(exp.TableSample) is not None:
        return True
    names = (each.name if isinstance(each, exp.Anonymous) else each.key for each in tree.find_all(exp.Func))
    return any(_BY_CHANCE.search(name) for name in names)


def place_of(node: exp.Expr) -> int | None:
    """Return where a name begins in the text it was read from."""
    if isinstance(node, exp.Func) and "start" in node.meta:
        return cast(int, node.meta["start"])
    for identifier in node.find_all(exp.Identifier):
        if "start" in identifier.meta:
            return cast(int, identifier.meta["start"])
    return None


def error_of(text: str, node: exp.Expr, message: str, *, kind: str) -> QueryError:
    """Return what is wrong with a name, with a caret under it where its place is known."""
    at = place_of(node)
    return QueryError(message, kind=kind) if at is None else error_at(text, at, message, kind=kind)


def path_call(column: exp.Expr, path: str) -> exp.Anonymous:
    """Return the call that reads a path of a dynamic value."""
    return exp.Anonymous(this="tide_get", expressions=[column, exp.Literal.string(path)])


def steps_of(node: exp.Expr) -> tuple[exp.Expr, str] | None:
    """Part a chain of brackets or a colon path into what it begins with and the path, or None if it is neither."""
    steps: list[str] = []
    while True:
        match node:
            case exp.Bracket() if len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Literal):
                steps.insert(0, _step(node.expressions[0]))
            case exp.JSONExtract() if isinstance(node.expression, exp.JSONPath):
                steps = [*_json_steps(node.expression), *steps]
            case _:
                return (node, _joined(steps)) if steps else None
        node = node.this


def _name_outputs(tree: exp.Query) -> None:
    """Name what a query gives without a name by its text, and give no two columns of the result one name."""
    select = tree
    while isinstance(select, exp.SetOperation | exp.Subquery):
        select = select.this
    if not isinstance(select, exp.Select):
        return
    taken: set[str] = set()
    for at, each in enumerate(select.expressions):
        if isinstance(each, exp.Star) or (isinstance(each, exp.Column) and isinstance(each.this, exp.Star)):
            continue
        name = each.alias_or_name if isinstance(each, exp.Alias | exp.Column) else text_of(each)
        unique = _untaken(name, taken)
        taken.add(unique.lower())
        if unique != each.alias_or_name or not isinstance(each, exp.Alias | exp.Column):
            bare = each.unalias()
            select.expressions[at] = exp.alias_(bare, unique, quoted=True, copy=False)
            select.expressions[at].parent, select.expressions[at].arg_key = select, "expressions"
    select.set("expressions", select.expressions)


def _untaken(name: str, taken: set[str]) -> str:
    number, unique = 1, name
    while unique.lower() in taken:
        number += 1
        unique = f"{name}_{number}"
    return unique


def text_of(node: exp.Expr) -> str:
    """Return the text that names an expression without a name."""
    if (parted := steps_of(node)) is not None:
        return parted[1]
    plain = node.copy()
    for identifier in plain.find_all(exp.Identifier):
        identifier.set("quoted", False)
    return plain.sql(dialect=DIALECT, normalize_functions="lower").replace(OURS, "").removeprefix("tide_")


def _own_calls(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Anonymous) and (own := IN_SQL.get(str(node.this).lower())):
        return exp.Anonymous(this=own, expressions=node.expressions)
    if isinstance(node, exp.Func) and (own := IN_SQL.get(node.sql_name().lower())):
        return exp.Anonymous(this=own, expressions=[node.this, node.expression])
    return node


def _words(node: exp.Expr) -> exp.Expr:
    """Put the time that a word such as ``today`` stands for where it is cast to one, as Spark does."""
    is_cast = (
        isinstance(node, exp.Cast | exp.TsOrDsToDate) and isinstance(node.this, exp.Literal) and node.this.is_string
    )
    kind = (
        exp.DType.DATE if isinstance(node, exp.TsOrDsToDate) else node.to.this if isinstance(node, exp.Cast) else None
    )
    if not is_cast or kind not in (*_TIMES, exp.DType.DATE) or (word := word_for_time(str(node.this.this))) is None:
        return node
    target = exp.DataType.build(kind, dialect=DIALECT)
    if word == "epoch":
        return exp.Cast(this=exp.Literal.string("1970-01-01"), to=target)
    if word == "now" and kind is not exp.DType.DATE:
        return exp.Cast(this=exp.CurrentTimestamp(), to=target)
    days = {"yesterday": -1, "tomorrow": 1}.get(word, 0)
    day: exp.Expr = exp.CurrentDate()
    if days:
        day = exp.TsOrDsAdd(this=day, expression=exp.Literal.number(days), unit=exp.var("DAY"))
    return exp.Cast(this=day, to=target)


def _step(literal: exp.Literal) -> str:
    return str(literal.this) if literal.is_string else f"[{literal.this}]"


def _json_steps(path: exp.JSONPath) -> list[str]:
    steps = []
    for part in path.expressions:
        if isinstance(part, exp.JSONPathKey):
            steps.append(str(part.this))
        elif isinstance(part, exp.JSONPathSubscript):
            steps.append(f"[{part.this}]" if str(part.this).isdecimal() else str(part.this))
    return steps


def _joined(steps: list[str]) -> str:
    return re.sub(r"\.(?=\[\d+\])", "", ".".join(steps))


def _check_whole(tree: exp.Expr, text: str) -> None:
    """Refuse what the parser reads and engines do not: a select of nothing, and a list of no values."""
    for node in tree.find_all(exp.Select, exp.In):
        if isinstance(node, exp.Select) and not node.expressions:
            raise error_at(text, len(text.rstrip()), "select needs at least one column or *", kind="syntax")
        if isinstance(node, exp.In) and not (node.expressions or set(node.args) & {"query", "unnest", "field"}):
            raise error_of(text, node, "in () needs at least one value", kind="syntax")


def _syntax_error(text: str, error: ParseError) -> QueryError:
    first: dict[str, Any] = error.errors[0] if error.errors else {}
    line, column = first.get("line") or 1, first.get("col") or 1
    found = str(first.get("highlight") or "")
    lines = text.split("\n")
    end = sum(len(each) + 1 for each in lines[: line - 1]) + column
    at = max(0, min(len(text), end - len(found)))
    description = str(first.get("description") or "")
    if _is_word(found) and ("missing for" in description or "Unexpected" in description):
        message = f"expected {_wanted(description)}, found {found!r}: a name that is a word of SQL stands in backquotes"
        return error_at(text, at, message, kind="syntax")
    if re.search("missing for|Expecting|Expected table|Expected END", description):
        at, found = _after(text, at, found)
    shown = repr(found) if found.strip() else "the end"
    message = f"expected {_wanted(description)}, found {shown}"
    return error_at(text, at, message + _hint(text), kind="syntax")


def _after(text: str, at: int, found: str) -> tuple[int, str]:
    """Return what follows a token, where the parser names the one before what is missing."""
    rest = text[at + len(found) :]
    following = re.match(r"\s*(\w+|\S)?", rest)
    if following is None or following[1] is None:
        return len(text.rstrip()), ""
    return at + len(found) + following.start(1), following[1]


def _wanted(description: str) -> str:
    if match := re.match(r"Expecting (\S+)", description):
        return match[1].rstrip(".")
    if match := re.match(r"Expected (table name|END|TYPE)", description):
        return {"table name": "a table", "END": "end", "TYPE": "a type"}[match[1]]
    return "an expression" if "missing for" in description else "something else"


def _is_word(found: str) -> bool:
    """Return whether a word stands where only a name or a value can, and has a meaning of its own."""
    return found.lower() in _TAKEN


def _hint(text: str) -> str:
    word = re.match(r"\s*(\w+)", text)
    if word is None or word[1].lower() in _STATEMENTS:
        return ""
    return did_you_mean(word[1], _STATEMENTS)


def _open_quote(text: str) -> QueryError:
    """Find the quote or comment that is never closed."""
    at = 0
    pattern = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`(?:[^`]|``)*`", re.DOTALL)
    while at < len(text):
        if match := pattern.match(text, at):
            at = match.end()
        elif text[at] in "'\"`" or text.startswith("/*", at):
            what = "a comment" if text[at] == "/" else "a quote"
            return error_at(text, at, f"{what} that is not closed", kind="syntax")
        else:
            at += 1
    return QueryError("the query cannot be read", kind="syntax")


def _not_a_query(text: str) -> str:
    word = re.match(r"\s*(\w+)", text)
    found = word[1] if word else "this"
    return f"only queries can be run: expected select or with, found {found!r}{_hint(text)}"

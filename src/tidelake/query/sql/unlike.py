"""Give functions that DuckDB has under the same name the answers that Spark gives.

Letters that become several when their case changes, such as ß, are left to Python, which follows the same tables as
Spark; all others to DuckDB. It does not touch casts, operators or times.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from tidelake.errors import QueryError
from tidelake.query.sql.casts import written

# Letters whose upper case is several, and those whose lower case is several or depends on where they stand.
_UPPER = "ßŉǰΐΰևẖ-ẚὐὒὔὖᾀ-ᾯᾲ-ᾴᾶᾷᾼῂ-ῄῆῇῌῒΐῖῗῢ-ῤῦῧῲ-ῴῶῷῼﬀ-ﬆﬓ-ﬗ"
_LOWER = "İΣ"
_TITLE = _UPPER + _LOWER + "Ǆ-ǌǱ-ǳ"


def answer_alike(tree: exp.Expr) -> None:
    """Change the calls of a tree in place."""
    for node in reversed(list(tree.find_all(*_CHANGES))):
        _CHANGES[type(node)](node)


def _case(name: str, letters: str) -> Callable[[exp.Expr], None]:
    """Return what has no letter out of the ordinary to DuckDB, and the rest to a function of ours."""

    def change(node: exp.Expr) -> None:
        value = exp.cast(node.this.copy(), "TEXT")
        own = node.copy()
        own.set("this", value)
        rare = f"CASE WHEN strlen({{0}}) > length({{0}}) AND regexp_matches({{0}}, '[{letters}]')"
        node.replace(written(f"{rare} THEN tide_{name}_of_rare({{0}}) ELSE {{1}} END", value, own))

    return change


def _zip(node: exp.Expr) -> None:
    """Name the fields as Spark does: by the column or the field that they come from, or by their place."""
    names = [_name(each) or str(at) for at, each in enumerate(node.expressions)]
    if not names or len({name.lower() for name in names}) < len(names):
        message = "arrays_zip takes arrays of unlike names in process: name them anew, or ask with engine='spark'"
        raise QueryError(message, kind="unsupported")
    places = [f"{{{at}}}" for at in range(len(names))]
    fields = ", ".join(f"{exp.Literal.string(name).sql('duckdb')}: tide_z[{at}]" for at, name in enumerate(names, 1))
    known = " AND ".join(f"{place} IS NOT NULL" for place in places)
    zipped = f"list_transform(list_zip({', '.join(places)}), lambda tide_z: {{{fields}}})"
    node.replace(written(f"CASE WHEN {known} THEN {zipped} END", *node.expressions))


def _name(node: exp.Expr) -> str | None:
    inner = node.expression if isinstance(node, exp.Dot) else node
    return inner.name if isinstance(inner, exp.Column | exp.Identifier) else None


def _any_value(node: exp.Expr) -> None:
    """Take the first value, and also one that is null unless nulls are to be passed over."""
    if not isinstance(node.parent, exp.IgnoreNulls):
        node.replace(exp.First(this=node.this.copy()))


_CHANGES: dict[type[exp.Expr], Callable[[exp.Expr], None]] = {
    exp.Upper: _case("upper", _UPPER),
    exp.Lower: _case("lower", _LOWER),
    exp.Initcap: _case("title", _TITLE),
    exp.ArraysZip: _zip,
    exp.AnyValue: _any_value,
}

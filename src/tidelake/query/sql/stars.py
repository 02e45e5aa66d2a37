"""Write out every star of a query, and every join on columns of one name, before its names are resolved.

Sources are joined from the left: a join USING some names, or a NATURAL one, puts those columns first and once, as the
left side's, the right side's, or, of a full join, whichever there is. A query that gives one name twice gives the later
ones others, so that what is around it can tell them apart; a name that was given twice cannot be used. It does not
touch a query whose sources' columns are not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from tidelake.query.sql.parse import error_of, text_of
from tidelake.query.sql.pivots import write_out_pivot

_Names = Sequence[str] | None
_Outer = tuple["_Relation", ...]  # what the selects around one read, the nearest first


@dataclass(frozen=True, slots=True)
class _Output:
    """A column of joined sources: its name, what it is read by, and the source that a star of one table means."""

    name: str
    value: exp.Expr
    table: str


@dataclass(slots=True)
class _Relation:
    """What a select reads: its columns in order, those that were merged, and the columns of each source."""

    outputs: list[_Output] = field(default_factory=list)
    merged: dict[str, exp.Expr] = field(default_factory=dict)
    tables: dict[str, list[_Output]] = field(default_factory=dict)
    tested: dict[str, list[_Output]] = field(default_factory=dict)  # of semi and anti joins, which conditions see


def expand_stars(tree: exp.Query, columns: Mapping[str, Sequence[str]], text: str) -> None:
    """Write out stars in place; ``columns`` are those of the tables, by the names they have in the tree."""
    _Expansion(columns, text).query(tree, {}, ())


class _Expansion:
    def __init__(self, columns: Mapping[str, Sequence[str]], text: str) -> None:
        self._columns, self._text = columns, text

    def query(self, node: exp.Expr, ctes: Mapping[str, _Names], outer: _Outer) -> _Names:
        """Write out the stars of one query and of those in it, and return its columns' names."""
        with_ = node.args.get("with_")
        if with_ is not None:
            ctes = self._common(with_, ctes, outer)
        if isinstance(node, exp.Subquery):
            names = self.query(node.this, ctes, outer)
            self._beside(node, ctes, outer)
            return names
        if isinstance(node, exp.SetOperation):
            names = self.query(node.this, ctes, outer)
            self.query(node.expression, ctes, outer)
            return names
        return self._select(node, ctes, outer) if isinstance(node, exp.Select) else None

    def _common(self, with_: exp.With, ctes: Mapping[str, _Names], outer: _Outer) -> Mapping[str, _Names]:
        known = dict(ctes)
        own: set[str] = set()
        for cte in with_.expressions:
            if cte.alias.lower() in own:
                message = f"{cte.alias!r} is the name of two common table expressions"
                raise error_of(self._text, cte.args["alias"], message, kind="syntax")
            own.add(cte.alias.lower())
            given = [each.name for each in cte.args["alias"].columns]
            inside = dict(known)
            if with_.recursive and isinstance(cte.this, exp.SetOperation):
                first = self.query(cte.this.this, known, outer)
                inside[cte.alias] = given or first
            names = self.query(cte.this, inside, outer)
            known[cte.alias] = given or names
        return known

    def _select(self, select: exp.Select, ctes: Mapping[str, _Names], outer: _Outer) -> _Names:
        relation = self._relation(select, ctes, outer)
        self._beside(select, ctes, (relation, *outer) if relation is not None else ())
        if relation is None:
            stars = any(each.is_star for each in select.expressions)
            return None if stars else _names_of(select)
        _merge(select, relation)
        select.set("expressions", self._outputs(select, relation))
        for star in list(select.find_all(exp.Star)):
            self._inside(star, select, relation)
        names = _names_of(select)
        _qualify(select, (relation, *outer), names or ())
        return names

    def _relation(self, select: exp.Select, ctes: Mapping[str, _Names], outer: _Outer) -> _Relation | None:
        """Join the sources of a select from the left, or return None where one is not known."""
        from_ = select.args.get("from_")
        sources = [(from_.this, None)] if from_ is not None else []
        sources += [(join.this, join) for join in select.args.get("joins") or []]
        sources += [(lateral, None) for lateral in select.args.get("laterals") or []]
        relation = _Relation()
        whole = True
        for node, join in sources:
            before = (relation, *outer) if isinstance(node, exp.Lateral) else outer
            found = self._source(node, ctes, before if whole else ())
            if found is None:
                whole = False
            if found is None or not whole:
                continue
            alias, names = found
            columns = [_Output(name, exp.column(name, table=alias, quoted=True), alias) for name in names]
            if join is not None and str(join.args.get("kind") or "").upper() in ("SEMI", "ANTI"):
                _on_names(join, relation, columns)
                relation.tested[alias] = columns
                continue
            relation.tables[alias] = columns
            _joined(relation, join, columns)
        return relation if whole else None

    def _source(self, node: exp.Expr, ctes: Mapping[str, _Names], outer: _Outer) -> tuple[str, Sequence[str]] | None:
        """Return a source's alias and the names of its columns."""
        node = self._pivoted(node, ctes, outer)
        nested = node.args.get("joins")
        names = self._names(node, ctes, outer)
        alias = node.args.get("alias")
        renamed = [each.name for each in alias.columns] if isinstance(alias, exp.TableAlias) else []
        if nested or (names is None and not renamed):
            return None
        if names is not None and renamed and len(renamed) != len(names):
            message = f"{node.alias_or_name} has {len(names)} columns, and {len(renamed)} names were given"
            raise error_of(self._text, alias or node, message, kind="syntax")
        names = renamed or names or []
        if not node.alias_or_name or len(set(names)) < len(names):
            return None if len(set(names)) < len(names) or not self._name(node) else (node.alias_or_name, names)
        return node.alias_or_name, names

    def _name(self, node: exp.Expr) -> bool:
        """Return a source without a name one of ours."""
        if not isinstance(node, exp.Subquery | exp.Values | exp.Lateral):
            return False
        self._made = getattr(self, "_made", 0) + 1
        alias = node.args.get("alias") or exp.TableAlias()
        alias.set("this", exp.to_identifier(f"_source_{self._made}", quoted=True))
        node.set("alias", alias)
        return True

    def _names(self, node: exp.Expr, ctes: Mapping[str, _Names], outer: _Outer) -> _Names:
        match node:
            case exp.Table() if isinstance(node.this, exp.Identifier):
                known = self._columns.get(node.name)
                return known if known is not None else ctes.get(node.name)
            case exp.Subquery():
                return self.query(node, ctes, outer)
            case exp.Lateral() if isinstance(node.this, exp.Subquery):
                return self.query(node.this, ctes, outer)
            case _:
                return None

    def _pivoted(self, node: exp.Expr, ctes: Mapping[str, _Names], outer: _Outer) -> exp.Expr:
        if not node.args.get("pivots"):
            return node
        alias = node.args.get("alias")
        named = [each.name for each in alias.columns] if isinstance(alias, exp.TableAlias) else None
        return write_out_pivot(node, self._names(node, ctes, outer) or named, self._text)

    def _beside(self, node: exp.Expr, ctes: Mapping[str, _Names], outer: _Outer) -> None:
        """Write out the stars of queries inside of expressions."""
        for key, value in node.args.items():
            if key in ("with_", "from_", "laterals") or (key == "this" and isinstance(node, exp.Subquery)):
                continue
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, exp.Join):
                    part = part.args.get("on")
                if isinstance(part, exp.Expr):
                    for inner in _outermost(part):
                        self.query(inner, ctes, outer)

    def _outputs(self, select: exp.Select, relation: _Relation) -> list[exp.Expr]:
        found: list[exp.Expr] = []
        for each in select.expressions:
            columns = _starred(each, relation)
            if columns is None:
                found.append(each)
                continue
            star = each if isinstance(each, exp.Star) else each.this
            found += [
                value if isinstance(value, exp.Column) and value.name == name else exp.alias_(value, name, quoted=True)
                for name, value in _chosen(star, columns, self._text)
            ]
        return _told_apart(found)

    def _inside(self, star: exp.Star, select: exp.Select, relation: _Relation) -> None:
        """Write out a star among the arguments of a function other than count."""
        whole = star.parent if isinstance(star.parent, exp.Column) else star
        call = whole.parent if whole is not None else None
        if (
            not isinstance(call, exp.Func | exp.In)
            or isinstance(call, exp.Count)
            or star.find_ancestor(exp.Select) is not select
        ):
            return
        columns = _starred(whole, relation)
        if columns is None:
            return
        values = [value.copy() for _, value in _chosen(star, columns, self._text)]
        arguments = [call.this, *call.expressions] if isinstance(call.this, exp.Expr) else list(call.expressions)
        alternatives = [each for given in arguments for each in (values if given is whole else [given])]
        if isinstance(call.this, exp.Expr):
            call.set("this", alternatives[0])
            call.set("expressions", alternatives[1:])
        else:
            call.set("expressions", alternatives)


def _starred(each: exp.Expr, relation: _Relation) -> Sequence[_Output] | None:
    """Return the columns that a star stands for, or None if it is none, or one of a source that is not known."""
    if isinstance(each, exp.Star):
        return relation.outputs
    if isinstance(each, exp.Column) and isinstance(each.this, exp.Star):
        return relation.tables.get(each.table)
    return None


def _chosen(star: exp.Star, columns: Sequence[_Output], text: str) -> list[tuple[str, exp.Expr]]:
    """Return the columns of a star without those that it leaves out."""
    left_out = set()
    for each in star.args.get("except_") or []:
        first = each.parts[0].name if isinstance(each, exp.Column) and len(each.parts) > 1 else None
        if isinstance(each, exp.Dot) or (first is not None and first not in {other.table for other in columns}):
            raise error_of(text, each, "except takes columns, not parts of one", kind="unsupported")
        left_out.add(each.name)
    return [(each.name, each.value.copy()) for each in columns if each.name not in left_out]


def _joined(relation: _Relation, join: exp.Join | None, columns: list[_Output]) -> None:
    names = _on_names(join, relation, columns) if join is not None else []
    if join is None or not names:
        relation.outputs += columns
        return
    left, right = {each.name: each for each in relation.outputs}, {each.name: each for each in columns}
    side = str(join.args.get("side") or "").upper()
    first = []
    for name in names:
        one, other = left[name].value, right[name].value
        value = other if side == "RIGHT" else one
        if side == "FULL":
            value = exp.Coalesce(this=one.copy(), expressions=[other.copy()])
        relation.merged[name] = value
        first.append(_Output(name, value, left[name].table))
    rest = [each for each in (*relation.outputs, *columns) if each.name not in names]
    relation.outputs = [*first, *rest]


def _on_names(join: exp.Join, relation: _Relation, columns: Sequence[_Output]) -> list[str]:
    """Make a condition of the names that a join is on, and return them."""
    left, right = {each.name: each.value for each in relation.outputs}, {each.name: each.value for each in columns}
    using = [each.name for each in join.args.get("using") or []]
    if str(join.args.get("method") or "").upper() == "NATURAL":
        using = [name for name in left if name in right]
    if not using or not all(name in left and name in right for name in using):
        return []
    join.set("on", exp.and_(*(exp.EQ(this=left[name].copy(), expression=right[name].copy()) for name in using)))
    join.set("using", None)
    join.set("method", None)
    return using


def _merge(select: exp.Select, relation: _Relation) -> None:
    """Put a merged column's value in the place of its bare name."""
    if not relation.merged:
        return
    for column in list(select.find_all(exp.Column)):
        if not column.table and column.name in relation.merged and column.find_ancestor(exp.Select) is select:
            value = relation.merged[column.name].copy()
            is_output = column.parent is select and column.arg_key == "expressions"
            column.replace(exp.alias_(value, column.name, quoted=True) if is_output else value)


def _qualify(select: exp.Select, relations: _Outer, names: Sequence[str]) -> None:
    """Say of every bare column of a select which source it is of: the nearest one that has it."""
    for column in list(select.find_all(exp.Column)):
        bare = not column.table and not isinstance(column.this, exp.Star) and column.find_ancestor(exp.Select) is select
        if not bare or (column.name in names and column.find_ancestor(exp.Order, exp.Select) is not select):
            continue
        hidden: set[str] = set()
        for relation in relations:
            every = {**relation.tables, **relation.tested}
            found = [alias for alias, columns in every.items() if any(each.name == column.name for each in columns)]
            if relation is not relations[0] and column.name in relation.merged:
                column.replace(relation.merged[column.name].copy())
                break
            if len(found) == 1 and found[0] not in hidden:
                column.set("table", exp.to_identifier(found[0], quoted=True))
            if found:
                break
            hidden |= every.keys()


def _told_apart(outputs: list[exp.Expr]) -> list[exp.Expr]:
    """Name the outputs of a star so that no two have one name."""
    taken: set[str] = set()
    found = []
    for each in outputs:
        name, number = each.alias_or_name, 1
        unique = name
        while unique and unique.lower() in taken:
            number += 1
            unique = f"{name}_{number}"
        taken.add(unique.lower())
        found.append(each if unique == name else exp.alias_(each.unalias(), unique, quoted=True))
    return found


def _names_of(select: exp.Select) -> _Names:
    """Return the names of what a select gives; what has none is named by its text."""
    if any(each.is_star for each in select.expressions):
        return None
    for each in select.expressions:
        if not isinstance(each, exp.Alias | exp.Aliases | exp.Column | exp.Dot | exp.Subquery | exp.UDTF | exp.Func):
            name = each.name if isinstance(each, exp.Literal) else text_of(each)
            each.replace(exp.alias_(each.copy(), name, quoted=True))
        elif not each.alias_or_name and not isinstance(each, exp.Explode | exp.Posexplode | exp.Inline | exp.Stack):
            each.replace(exp.alias_(each.copy(), text_of(each), quoted=True))
    return [each.alias_or_name for each in select.expressions]


def _outermost(node: exp.Expr) -> list[exp.Expr]:
    """Return the queries in an expression that are in no other of them."""
    if isinstance(node, exp.Query):
        return [node]
    found: list[exp.Expr] = []
    for child in node.iter_expressions():
        found += _outermost(child)
    return found

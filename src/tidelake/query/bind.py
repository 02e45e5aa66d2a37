"""Find what the names of a query stand for: tables, at which time, and their columns.

Every table that a query reads becomes a reference of its own, ``tide_0``, ``tide_1``, …, under the alias that the query
knows it by. Afterwards every column says which source it is of, and every star is written out. Names are found whatever
their case; one spelling, the table's own, is used throughout. Engines do not tell names apart by case: where only case
tells two columns apart, the second has another name in the tree. It does not read rows, and it does not plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, cast

from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.qualify_columns import qualify_columns
from sqlglot.optimizer.qualify_tables import qualify_tables
from sqlglot.optimizer.scope import Scope, traverse_scope
from sqlglot.schema import MappingSchema

from tidelake.errors import InvalidInputError, NotFoundError, QueryError
from tidelake.model.lexer import did_you_mean, tables_there_are
from tidelake.model.schema import DataType, fresh_name
from tidelake.query.constants import constant_of
from tidelake.query.kql.relations import keyed
from tidelake.query.sql.parse import error_of, path_call, steps_of
from tidelake.query.sql.stars import expand_stars
from tidelake.query.sql.tokens import DIALECT, double_quoted
from tidelake.query.tables import Tables

PREFIX = "tide_"

# How sqlglot calls our types.
_TYPE_NAMES = {
    "int": "INT",
    "long": "BIGINT",
    "real": "DOUBLE",
    "bool": "BOOLEAN",
    "string": "TEXT",
    "timestamp": "TIMESTAMPTZ",
    "dynamic": "VARIANT",
    "vector": "ARRAY<FLOAT>",
}


@dataclass(frozen=True, slots=True)
class AsOf:
    """The state of a table that is wanted: at a time, or a snapshot by its sequence."""

    time: str | None = None
    sequence: int | None = None


class PastTables(Tables, Protocol):
    """Tables whose columns can also be asked for as they once were."""

    def columns_at(self, name: str, at: AsOf) -> Mapping[str, DataType]:
        """Return a table's columns at an older state."""
        ...


@dataclass(frozen=True, slots=True)
class Reference:
    """One use of a table in a query, the name it has in the tree, and its columns by the names used there."""

    name: str
    table: str
    at: AsOf | None
    types: Mapping[str, DataType]
    spelled: Mapping[str, str]  # the table's own spelling of each


@dataclass(frozen=True, slots=True)
class Bound:
    """A tree in which every name is known, and the tables it reads."""

    tree: exp.Query
    references: Mapping[str, Reference]
    schema: MappingSchema
    shown: Mapping[str, str] = field(default_factory=dict)  # names of the tree that are not for people, and what is


def bind(tree: exp.Query, text: str, tables: PastTables) -> Bound:
    """Resolve every name of a tree, which is changed in place, or say which is not known."""
    found = [_reference(node, text, tables, number) for number, node in enumerate(_tables_of(tree))]
    apart = _told_apart(found)
    spelling = _one_spelling(tree, found, apart)
    references = {each.name: _respelled(each, spelling, apart) for each in found}
    _resolve_paths(tree, references)
    expand_stars(tree, {name: list(each.types) for name, each in references.items()}, text)
    schema = MappingSchema(dialect=DIALECT, normalize=False)
    for each in references.values():
        # A name given as text would be parsed, and @version would be a parameter.
        types = {exp.to_identifier(name, quoted=True): _type_name(kind) for name, kind in each.types.items()}
        schema.add_table(exp.to_table(each.name), cast("dict[str, str]", types), dialect=DIALECT, normalize=False)
    try:
        qualify_tables(tree, dialect=DIALECT)
        qualified = qualify_columns(tree, schema, dialect=DIALECT)
    except SqlglotError as error:
        raise _unresolved(text, tree, references, str(error)) from None
    _check_columns(qualified, references, text)
    _quote(qualified)
    return Bound(qualified, references, schema, {key: name for name, key in apart.items()})


def quoted_columns(tree: exp.Query, text: str, tables: PastTables) -> set[str]:
    """Return the words in double quotes that name a column of some table or subquery of a query."""
    words = double_quoted(text)
    if not words:
        return set()
    known = {each.alias.lower() for each in tree.find_all(exp.Alias)}
    known |= {name.name.lower() for alias in tree.find_all(exp.TableAlias) for name in alias.columns}
    for node in _tables_of(tree):
        name = f"{node.db}.{node.name}" if node.db else node.name
        for spelled in _spellings(name, tables):
            with suppress(NotFoundError):
                known |= {column.lower() for column in tables.columns(spelled)}
    return {word for word in words if word.lower() in known}


def bind_tables(tree: exp.Query, text: str, tables: PastTables) -> Bound:
    """Find the tables of a tree whose columns are all resolved already, as KQL's are."""
    found = [_reference(node, text, tables, number) for number, node in enumerate(_tables_of(tree))]
    references = {}
    for each in found:
        spelled = {column.key: column.name for column in keyed((name, "") for name in each.types)}
        types = {key: each.types[name] for key, name in spelled.items()}
        references[each.name] = Reference(each.name, each.table, each.at, types, spelled)
    return Bound(tree, references, MappingSchema(dialect=DIALECT, normalize=False))


def _type_name(kind: DataType) -> str:
    return _TYPE_NAMES[kind.kind] if kind.logical is None else kind.logical.spark


def _tables_of(tree: exp.Query) -> list[exp.Table]:
    """Return the nodes that name a table of the lake, in the order of the text."""
    places: dict[int, _Places] = {}
    nodes = [
        node for node in tree.find_all(exp.Table) if isinstance(node.this, exp.Identifier) and not _is_cte(node, places)
    ]
    return sorted(nodes, key=lambda node: node.this.meta.get("start", 0))


class _Places:
    """The places of the common tables of one ``with``, by name and by node; of equal names the first counts."""

    def __init__(self, with_: exp.With) -> None:
        self.by_node = {id(cte): at for at, cte in enumerate(with_.expressions)}
        self.by_name = {cte.alias.lower(): at for at, cte in reversed(list(enumerate(with_.expressions)))}


def _is_cte(table: exp.Table, places: dict[int, _Places]) -> bool:
    """Return whether a name is that of a common table expression that can be seen from its place."""
    if table.db:
        return False
    name, node = table.name.lower(), cast("exp.Expr | None", table)
    inside: exp.CTE | None = None
    while node is not None:
        if isinstance(node, exp.CTE):
            inside = node
        with_ = node.args.get("with_")
        if with_ is not None:
            known = places.get(id(with_)) or places.setdefault(id(with_), _Places(with_))
            own = known.by_node.get(id(inside), len(known.by_node))  # those after it cannot be seen from inside of one
            if known.by_name.get(name, len(known.by_node) + 1) < own + bool(with_.recursive):
                return True
        node = node.parent
    return False


def _reference(node: exp.Table, text: str, tables: PastTables, number: int) -> Reference:
    if node.catalog:
        raise error_of(text, node, f"{node.sql(DIALECT)} has too many parts: write namespace.table", kind="syntax")
    table = f"{node.db}.{node.name}" if node.db else node.name
    if isinstance(alias := node.args.get("alias"), exp.TableAlias) and isinstance(alias.this, exp.Parameter):
        raise error_of(text, node, f"'@' after {table} means nothing here: write version as of 3", kind="syntax")
    version = node.args.get("version")
    at = None if version is None else _at(version, text, node)
    spelled, columns = _found(table, at, text, node, tables)
    name = f"{PREFIX}{number}"
    alias = node.args.get("alias") or exp.TableAlias(this=exp.to_identifier(node.name, quoted=True))
    node.set("this", exp.to_identifier(name, quoted=True))
    node.set("db", None)
    node.set("version", None)
    node.set("alias", alias)
    return Reference(name, spelled, at, columns, {})


def _found(
    table: str, at: AsOf | None, text: str, node: exp.Table, tables: PastTables
) -> tuple[str, Mapping[str, DataType]]:
    """Find a table as it is spelled, else whatever its case."""
    for name in _spellings(table, tables):
        try:
            tables.columns(name)
        except NotFoundError:
            continue
        try:
            return name, tables.columns(name) if at is None else tables.columns_at(name, at)
        except NotFoundError:
            wanted = f"at {at.time}" if at is not None and at.time is not None else f"{at.sequence if at else ''}"
            message = f"{table} has no snapshot {wanted}, or no longer"
            raise error_of(text, node, message, kind="unknown_snapshot") from None
        except InvalidInputError as error:
            raise error_of(text, node, f"{table} cannot be read as it was: {error}", kind=error.kind) from None
    message = f"there is no table {table!r}{_like_table(table, tables.names())}"
    raise error_of(text, node, message, kind="unknown_table")


def _spellings(table: str, tables: PastTables) -> Iterator[str]:
    yield table
    known = {name.lower(): name for name in tables.names()}
    yield known.get(table.lower()) or known.get(f"default.{table.lower()}") or table


def _like_table(table: str, known: Sequence[str]) -> str:
    bare = {name.rpartition(".")[2]: name for name in known}
    if close := did_you_mean(table, known):
        return close
    wanted = table.rpartition(".")[2].lower()
    same = [name for short, name in bare.items() if short.lower() == wanted]
    return f", did you mean {same[0]!r}?" if same else did_you_mean(wanted, bare) or tables_there_are(known)


def _at(version: exp.Expr, text: str, node: exp.Table) -> AsOf:
    value = constant_of(version.expression)
    if str(version.this).upper() == "VERSION" and isinstance(value, int):
        return AsOf(sequence=value)
    if str(version.this).upper() == "TIMESTAMP" and value is not None:
        return AsOf(time=str(value))
    wanted = "a number" if str(version.this).upper() == "VERSION" else "a time"
    raise error_of(text, node, f"{node.name} AS OF needs {wanted}", kind="syntax")


def _told_apart(references: Sequence[Reference]) -> Mapping[str, str]:
    """Name in the tree the columns that in some table only case tells apart."""
    every = {name.lower() for each in references for name in each.types}
    counts = [Counter(map(str.lower, each.types)) for each in references]
    shared = {name for count in counts for name, times in count.items() if times > 1}
    apart: dict[str, str] = {}
    for name in (name for each in references for name in each.types):
        if name.lower() in shared and name not in apart:
            is_first = name.lower() not in map(str.lower, apart)
            apart[name] = name if is_first else fresh_name(name, [*every, *apart.values()])
    return apart


def _one_spelling(tree: exp.Query, references: Iterable[Reference], apart: Mapping[str, str]) -> Mapping[str, str]:
    """Spell every name of the tree one way: as the first table that has it does, else as it is first written."""
    spelling: dict[str, str] = {}
    for reference in references:
        for name in reference.types:
            spelling.setdefault(name.lower(), name)
    for identifier in tree.find_all(exp.Identifier):
        name = identifier.this
        if not name.startswith(PREFIX):
            identifier.set("this", apart.get(name) or spelling.setdefault(name.lower(), name))
        identifier.set("quoted", True)
    return spelling


def _respelled(reference: Reference, spelling: Mapping[str, str], apart: Mapping[str, str]) -> Reference:
    spelled = {apart.get(name) or spelling[name.lower()]: name for name in reference.types}
    types = {shown: reference.types[name] for shown, name in spelled.items()}
    return Reference(reference.name, reference.table, reference.at, types, spelled)


def _resolve_paths(tree: exp.Query, references: Mapping[str, Reference]) -> None:
    """Turn every way to write a path of a dynamic column into one call."""
    types = [pair for each in references.values() for pair in each.types.items()]
    dynamic = {name for name, kind in types if kind.kind == "dynamic" and kind.logical is None}
    nested = {name for name, kind in types if kind.logical is not None and kind.logical.is_nested}
    aliases = {alias.name for alias in tree.find_all(exp.TableAlias)} | {cte.alias for cte in tree.find_all(exp.CTE)}
    for dot in list(tree.find_all(exp.Dot)):
        if not isinstance(dot.parent, exp.Dot) and (parts := _dotted(dot)):
            dot.replace(_column_or_path(parts, aliases, dynamic, nested))
    for column in list(tree.find_all(exp.Column)):
        if len(column.parts) > 1 and not isinstance(column.this, exp.Star):
            parts = cast("list[exp.Identifier]", column.parts)
            if len(parts) > 2 or (parts[0].name not in aliases and parts[0].name in dynamic | nested):
                column.replace(_column_or_path(parts, aliases, dynamic, nested))
    for node in list(tree.find_all(exp.Bracket, exp.JSONExtract)):
        if isinstance(node.parent, exp.Bracket | exp.JSONExtract) and node.arg_key == "this":
            continue
        parted = steps_of(node)
        if parted is not None and isinstance(parted[0], exp.Column) and parted[0].name in nested:
            continue  # the engines know what is in it
        if parted is not None and _is_path(*parted, dynamic):
            node.replace(_path_of(*parted))


def _dotted(node: exp.Expr) -> list[exp.Identifier] | None:
    if isinstance(node, exp.Dot):
        before = _dotted(node.this)
        return [*before, node.expression] if before and isinstance(node.expression, exp.Identifier) else None
    return cast("list[exp.Identifier]", list(node.parts)) if isinstance(node, exp.Column) else None


def _column_or_path(
    parts: Sequence[exp.Identifier], aliases: set[str], dynamic: set[str], nested: set[str]
) -> exp.Expr:
    """Read dotted names: an alias or a namespace may come first, then a column, then a path into it, or its fields."""
    names = [part.name for part in parts]
    at = 1 if names[0] in aliases else 2 if len(names) > 2 and names[1] in aliases else 0
    if names[at] in nested:
        column = exp.column(parts[at], table=parts[at - 1] if at else None)
        return exp.Dot.build([column, *parts[at + 1 :]]) if parts[at + 1 :] else column
    if at == 0 and names[0] not in dynamic:
        return exp.column(parts[-1], table=parts[-2])
    column = exp.column(parts[at], table=parts[at - 1] if at else None)
    rest = names[at + 1 :]
    return path_call(column, ".".join(rest)) if rest else column


def _is_path(base: exp.Expr, path: str, dynamic: set[str]) -> bool:
    if isinstance(base, exp.Anonymous) and base.this == "tide_get":
        return True
    if isinstance(base, exp.Column):
        return base.name in dynamic or not path.startswith("[")
    return False


def _path_of(base: exp.Expr, path: str) -> exp.Expr:
    if isinstance(base, exp.Anonymous):
        before = base.expressions[1].this
        return path_call(base.expressions[0], before + ("" if path.startswith("[") else ".") + path)
    return path_call(base, path)


_Sources = dict[str, Sequence[str] | None]


def _check_columns(tree: exp.Query, references: Mapping[str, Reference], text: str) -> None:
    seen: dict[int, _Sources] = {}
    for scope in traverse_scope(tree):
        outputs = set(scope.expression.named_selects) if isinstance(scope.expression, exp.Query) else set()
        sight: _Sources | None = None
        for column in scope.columns:
            if isinstance(column.this, exp.Star) or (column.name in outputs and _may_name_output(column)):
                continue
            known = sight = _in_sight(scope, references, seen) if sight is None else sight
            if _is_text(column, known, text):
                column.replace(exp.Literal.string(column.name))
                continue
            if not column.table:
                if sum(column.name in (names or ()) for names in known.values()) > 1:
                    raise _ambiguous_column(text, column)
                raise _unknown_column(text, column, [name for names in known.values() for name in names or ()])
            if column.table not in known:
                message = f"there is no table or alias {column.table!r} here{did_you_mean(column.table, known)}"
                raise error_of(text, column, message, kind="unknown_table").about(column.table)
            held = known[column.table]
            if held is not None and column.name not in held:
                raise _unknown_column(text, column, held)


def _is_text(column: exp.Column, known: Mapping[str, Sequence[str] | None], text: str) -> bool:
    """Whether a word in double quotes names no column that can be seen from its place."""
    start = column.this.meta.get("start")
    if start is None or text[start : start + 1] != '"':
        return False
    return not any(names is None or column.name in names for names in known.values())


def _in_sight(scope: Scope, references: Mapping[str, Reference], seen: dict[int, _Sources]) -> _Sources:
    """Return the columns of every source that can be named here: the scope's own, then those of scopes around it."""
    known: _Sources = {}
    around: Scope | None = scope
    while around is not None:
        if id(around) not in seen:
            seen[id(around)] = dict(_columns_by_source(around, references))
        known = seen[id(around)] | known
        around = around.parent
    return known


def _columns_by_source(scope: Scope, references: Mapping[str, Reference]) -> Iterator[tuple[str, Sequence[str] | None]]:
    """Yield the names of each source's columns; None where they are not known."""
    not_read = scope.cte_sources.keys() - _read_here(scope.expression)
    for alias, source in scope.sources.items():
        if alias in not_read:
            continue
        if isinstance(source, exp.Table):
            reference = references.get(source.name)
            yield alias, None if reference is None else list(reference.types)
        else:
            inner = source.expression
            names = inner.named_selects if isinstance(inner, exp.Select | exp.SetOperation) else None
            yield alias, None if not names or "*" in names else names


def _read_here(query: exp.Expr) -> set[str]:
    """Return the aliases of a select's sources: a common table could be read by its name, and may not be."""
    from_ = query.args.get("from_")
    sources = [*([from_] if from_ is not None else []), *(query.args.get("joins") or [])]
    found = {each.this.alias_or_name for each in sources}
    nested = (table for each in sources for table in each.find_all(exp.Table))
    return found | {table.alias_or_name for table in nested if table.find_ancestor(exp.Select) is query}


def _unknown_column(text: str, column: exp.Column, known: Sequence[str]) -> QueryError:
    suggestion = did_you_mean(column.name, known)
    listed = suggestion or (f"; there are {', '.join(dict.fromkeys(known))}" if known else "")
    return error_of(text, column, f"there is no column {column.name!r}{listed}", kind="unknown_column").about(
        column.name
    )


def _may_name_output(column: exp.Column) -> bool:
    """Return whether a name without a table stands where the select's own columns can be named."""
    return not column.table and column.find_ancestor(exp.Order, exp.Having, exp.Qualify, exp.Select) is not (
        column.find_ancestor(exp.Select)
    )


def _ambiguous_column(text: str, column: exp.Column) -> QueryError:
    return error_of(text, column, f"{column.name!r} is ambiguous: say of which table", kind="ambiguous")


def _unresolved(text: str, tree: exp.Query, references: Mapping[str, Reference], reason: str) -> QueryError:
    """Return what the resolver could not resolve, with the place of the name it complains of."""
    problem, _, name = reason.split("\n")[0].split(". Line")[0].partition(": ")
    name = name.strip("'\"`. ")
    for column in tree.find_all(exp.Column):
        if name and column.name == name:
            if "mbiguous" in problem:
                return _ambiguous_column(text, column)
            return _unknown_column(text, column, _columns_of_alias(tree, column.table, references))
    return QueryError(reason.split("\n")[0].lower(), kind="query")


def _columns_of_alias(tree: exp.Query, alias: str, references: Mapping[str, Reference]) -> list[str]:
    tables = [table for table in tree.find_all(exp.Table) if table.name in references]
    own = [table for table in tables if table.alias_or_name == alias] if alias else tables
    return [name for table in own for name in references[table.name].types]


def _quote(tree: exp.Query) -> None:
    for identifier in tree.find_all(exp.Identifier):
        identifier.set("quoted", True)

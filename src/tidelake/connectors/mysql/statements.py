"""Say what a statement in the binlog does to tables beside the rows that it logs.

Changes of rows are logged as rows; a definition of data is logged as its text. Some of them give rows other values
without a word: a new column with a default, a renamed one, another table under the old name. What cannot be understood
is taken to do the most that a statement which names the table can do. It does not read the binlog.
"""

from __future__ import annotations

import re
from collections.abc import Collection

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tidelake.connectors.protocol import Effect

_COMMENTS = re.compile(r"/\*(?!!).*?\*/|--[ \t][^\n]*|#[^\n]*", re.DOTALL)
_HARMLESS = re.compile(
    r"(?i)\s*(begin|commit|rollback|savepoint|release|xa|start|set|grant|revoke|flush|analyze|optimize|check|repair|"
    r"(create|alter|drop)\s+(or\s+replace\s+)?(definer\s*=\s*\S+\s+)?(user|role|view|trigger|procedure|function|event|"
    r"server|sequence|temporary))\b"
)
_INDEX = re.compile(r"(?i)\s*(create\s+(unique\s+|fulltext\s+|spatial\s+)?index|drop\s+index)\b")
_RENAME = re.compile(r"(?i)\s*rename\b")
_DROP_DATABASE = re.compile(r"(?i)\s*drop\s+(database|schema)\s+(if\s+exists\s+)?`?([^`\s;]+)")
_KEEPS = (exp.NotNullColumnConstraint, exp.CommentColumnConstraint, exp.CharacterSetColumnConstraint,
          exp.CollateColumnConstraint)  # fmt: skip


def effects_of(statement: str, database: str, tables: Collection[str]) -> dict[str, Effect]:
    """Return the tables, of those that are of interest, that a statement does something to."""
    text = _COMMENTS.sub(" ", statement)
    if _HARMLESS.match(text) or _INDEX.match(text):
        return {}
    if gone := _DROP_DATABASE.match(text):
        return {name: Effect("emptied") for name in tables if name.split(".", 1)[0] == gone[3]}
    named = [name for name in tables if re.search(rf"(?i)(?<![\w$]){re.escape(name.split('.', 1)[1])}(?![\w$])", text)]
    if not named:
        return {}
    if _RENAME.match(text):
        return {name: Effect("rows") for name in named}
    try:
        tree = sqlglot.parse_one(text, dialect="mysql")
    except SqlglotError:
        return {name: Effect("rows") for name in named}
    meant = {name for name in (_name(each, database) for each in tree.find_all(exp.Table)) if name in named}
    match tree:
        case exp.TruncateTable():
            return {name: Effect("emptied") for name in meant}
        case exp.Drop() if tree.args.get("kind") == "TABLE":
            return {name: Effect("emptied") for name in meant}
        case exp.Create() if tree.args.get("kind") == "TABLE":
            own = tree.this.this if isinstance(tree.this, exp.Schema) else tree.this
            replaced = _name(own, database) if isinstance(own, exp.Table) else ""
            return {replaced: Effect("emptied")} if replaced in named and not tree.args.get("exists") else {}
        case exp.Alter() if re.search(r"(?i)\bprimary\s+key\b", text):
            return {name: Effect("rows") for name in meant}
        case exp.Alter():
            return {name: _altered(tree) for name in meant}
    return {name: Effect("rows") for name in named}


def _name(table: exp.Table, database: str) -> str:
    return f"{table.db or database}.{table.name}"


def _altered(tree: exp.Alter) -> Effect:
    """Return what an ALTER TABLE does; one of which nothing is known to change values changes none."""
    new, widened = list[str](), list[str]()
    actions = tree.args.get("actions") or []
    if not actions:  # options of the table, or something that was not understood
        return Effect("values")
    for action in actions:
        match action:
            case exp.ColumnDef() if _is_plain(action):
                new.append(action.name)
            case exp.Drop() if action.args.get("kind") in ("COLUMN", "INDEX", "KEY", "CONSTRAINT"):
                continue
            case exp.AddConstraint():
                continue
            case exp.ModifyColumn() if _is_widened(action):
                widened.append(action.this.name)
            case exp.AlterRename():
                return Effect("rows")
            case _:
                return Effect("values")
    return Effect("columns", tuple(new), tuple(widened))


def _is_plain(column: exp.ColumnDef) -> bool:
    """Whether a new column is null in all rows."""
    kind = column.args.get("kind")
    if kind is None or kind.is_type(exp.DataType.Type.TIMESTAMP, exp.DataType.Type.TIMESTAMPTZ):
        return False  # a TIMESTAMP may have a default that nobody wrote
    for constraint in column.args.get("constraints") or []:
        is_null = isinstance(constraint.kind, exp.NotNullColumnConstraint) and constraint.kind.args.get("allow_null")
        if not isinstance(constraint.kind, _KEEPS) or (
            isinstance(constraint.kind, exp.NotNullColumnConstraint) and not is_null
        ):
            return False
    return True


def _is_widened(action: exp.ModifyColumn) -> bool:
    """Whether a column becomes a BIGINT, which has every integer that it had."""
    column = action.this
    if action.args.get("rename_from") is not None or not isinstance(column, exp.ColumnDef):
        return False
    kind = column.args.get("kind")
    return kind is not None and not column.args.get("constraints") and bool(kind.is_type(exp.DataType.Type.BIGINT))

"""Cut SQL into tokens, and mark among them what Spark reads otherwise than the parser does.

A call of a function that is written out per engine (``functions``) is given a name of ours, so that the parser
keeps its arguments as they are. A word in double quotes is text, as in Spark, unless it names a column. The places of
tokens stay, so that errors still point at the text. It does not know which columns there are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.tokenizer_core import Token, TokenType

from tidelake.model.lexer import error_at
from tidelake.query.functions.declaration import OURS
from tidelake.query.long_lists import Values, cut_lists
from tidelake.query.sql.functions import CALLS
from tidelake.query.sql.time_texts import days_of_text, micros_of_text, wall_micros_of_text

DIALECT = "databricks"  # Spark's, with paths into variants after a colon

# Words that are more than names to the tokenizer, and may still be called.
_CALLED = {
    TokenType.VAR, TokenType.LEFT, TokenType.RIGHT, TokenType.REPLACE, TokenType.FORMAT, TokenType.FIRST,
    TokenType.RLIKE, TokenType.SOME, TokenType.ANY, TokenType.INSERT, TokenType.RANGE, TokenType.LIKE, TokenType.ILIKE,
    TokenType.EXISTS, TokenType.FILTER, TokenType.ISNULL,
}  # fmt: skip
_NOT_CALLED_AFTER = {TokenType.ALIAS, TokenType.WITH, TokenType.DOT, TokenType.JOIN}
_BEGINS_QUERY = {TokenType.SELECT, TokenType.WITH, TokenType.FROM, TokenType.VALUES, TokenType.WHERE}
_RENAMED = {"to_timestamp_ntz": "to_timestamp", "to_timestamp_ltz": "to_timestamp", "timediff": "timestampdiff"}
_OF_DAYS = {"datediff", "date_diff"}
_UNITS = {
    "MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "DAYOFYEAR", "WEEK", "MONTH", "QUARTER", "YEAR",
}  # fmt: skip
_PREDICATES = {TokenType.ISNULL, TokenType.RLIKE, TokenType.LIKE, TokenType.ILIKE, TokenType.SOME, TokenType.ANY}
_BEGINS_VALUE = {
    TokenType.SELECT, TokenType.L_PAREN, TokenType.COMMA, TokenType.WHERE, TokenType.AND, TokenType.OR, TokenType.NOT,
    TokenType.WHEN, TokenType.THEN, TokenType.ELSE, TokenType.ON, TokenType.HAVING, TokenType.GROUP_BY,
    TokenType.ORDER_BY, TokenType.DISTINCT,
}  # fmt: skip

_ENDS_VALUE = {TokenType.COMMA, TokenType.FROM, TokenType.R_PAREN}
_WORDS = {"epoch", "now", "today", "tomorrow", "yesterday"}
_READ: dict[str, Callable[[str], int | None]] = {
    "DATE": days_of_text, "TIMESTAMP": micros_of_text, "TIMESTAMP_LTZ": micros_of_text,
    "TIMESTAMP_NTZ": wall_micros_of_text,
}  # fmt: skip
_SUCH = ("2026-01-31 12:00:00", "2026-01-31")


def tokens_of(text: str, columns: Collection[str] = ()) -> tuple[list[Token], Mapping[str, Values]]:
    """Return the tokens of a text, and its long lists, each of which is one token.

    Double-quoted words that name one of ``columns`` are names.
    """
    dialect = Dialect.get_or_raise(DIALECT)
    tokens, lists = cut_lists(list(dialect.tokenize(text)), text)
    _check_commas(text, tokens)
    names = {name.lower() for name in columns}
    tokens = [_named(token, text, names) for token in tokens]
    _check_literals(text, tokens)
    tokens = [_all_named(token, tokens[at - 1 : at], tokens[at + 1 : at + 2]) for at, token in enumerate(tokens)]
    ours = [
        _ours(token, tokens[at - 1] if at else None, tokens[at + 1 : at + 4])  #
        for at, token in enumerate(tokens)
    ]
    return ours, lists


def word_for_time(text: str) -> str | None:
    """Return the word that a literal has in the place of a time, such as today; a zone after it may be UTC."""
    match = re.fullmatch(r"\s*([A-Za-z]+)\s*(Z|UTC|GMT|Zulu)?\s*", text)
    word = match[1].lower() if match else ""
    return word if word in _WORDS else None


def _check_literals(text: str, tokens: Sequence[Token]) -> None:
    """Refuse a literal such as ``date 'x'`` that is no time, as Spark does, and a number that no double holds."""
    for before, after in pairwise(tokens):
        read = _READ.get(before.text.upper()) if after.token_type is TokenType.STRING else None
        is_name = before.token_type in (TokenType.STRING, TokenType.IDENTIFIER)
        if read is None or is_name or word_for_time(after.text) is not None or read(after.text) is not None:
            continue
        kind = before.text.lower()
        raise error_at(
            text, after.start, f"{after.text!r} is not a {kind} such as {_SUCH[kind == 'date']}", kind="bad_time"
        )
    for token in tokens:
        if token.token_type is TokenType.NUMBER and _is_beyond(token.text):
            raise error_at(text, token.start, "the number is beyond what a double holds", kind="syntax")


def _is_beyond(number: str) -> bool:
    try:
        return math.isinf(float(number))
    except ValueError:
        return False


def _all_named(token: Token, before: Sequence[Token], after: Sequence[Token]) -> Token:
    """Take ``all`` after select as a column's name where nothing else can follow it."""
    is_all = token.token_type is TokenType.ALL and bool(before) and before[0].token_type is TokenType.SELECT
    if is_all and (not after or after[0].token_type in _ENDS_VALUE):
        return _with(token, TokenType.VAR, token.text)
    return token


def double_quoted(text: str) -> set[str]:
    """Return the words of a text that stand in double quotes."""
    tokens = Dialect.get_or_raise(DIALECT).tokenize(text) if '"' in text else []
    return {token.text for token in tokens if _is_double_quoted(token, text)}


def parse_tokens(tokens: list[Token], text: str) -> list[exp.Expr]:
    """Parse tokens as statements."""
    found = Dialect.get_or_raise(DIALECT).parser().parse(tokens, text)
    trees = [tree for tree in found if tree is not None]
    for tree in trees:
        for identifier in tree.find_all(exp.Identifier):  # a name that was not a call after all
            if str(identifier.this).startswith(OURS):
                identifier.set("this", str(identifier.this).removeprefix(OURS))
    return trees


def _is_double_quoted(token: Token, text: str) -> bool:
    return token.token_type is TokenType.STRING and text[token.start : token.start + 1] == '"'


def _named(token: Token, text: str, columns: Collection[str]) -> Token:
    if _is_double_quoted(token, text) and token.text.lower() in columns:
        return _with(token, TokenType.IDENTIFIER, token.text)
    return token


def _ours(token: Token, before: Token | None, after: Sequence[Token]) -> Token:
    """Give a call of a function that we write ourselves the name we know it by."""
    is_call = bool(after) and after[0].token_type is TokenType.L_PAREN and token.token_type in _CALLED
    if is_call and token.text.lower() in _OF_DAYS and _has_unit(after):
        return _with(token, TokenType.VAR, "timestampdiff")
    if is_call and token.text.lower() in _RENAMED:
        return _with(token, TokenType.VAR, _RENAMED[token.text.lower()])
    if not is_call or token.text.lower() not in CALLS:
        return token
    if len(after) > 1 and after[1].token_type in _BEGINS_QUERY:
        return token
    if before is not None and before.token_type in _NOT_CALLED_AFTER:
        return token
    if token.token_type in _PREDICATES and (before is None or before.token_type not in _BEGINS_VALUE):
        return token  # an operator between two values
    return _with(token, TokenType.VAR, OURS + token.text.lower())


def _has_unit(after: Sequence[Token]) -> bool:
    """Whether a call begins as datediff(HOUR, a, b) does, which counts whole hours."""
    return len(after) > 2 and after[2].token_type is TokenType.COMMA and after[1].text.upper() in _UNITS


def _with(token: Token, kind: TokenType, text: str) -> Token:
    return Token(kind, text, token.line, token.col, token.start, token.end, token.comments)


def _check_commas(text: str, tokens: list[Token]) -> None:
    """Refuse two commas in a row, which the parser would pass over."""
    for before, after in pairwise(tokens):
        if before.token_type is TokenType.COMMA and after.token_type in (TokenType.COMMA, TokenType.FROM):
            raise error_at(text, after.start, f"expected an expression, found {after.text!r}", kind="syntax")

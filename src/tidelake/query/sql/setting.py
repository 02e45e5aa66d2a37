"""Read the one setting that may stand before a query: whose tables are meant, ``SET tide.user = 'alice'``.

It is taken out of the text and blanks are left in its place, so that errors still point at the text. It does not judge
the user.
"""

from __future__ import annotations

import re

from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from tidelake.model.lexer import error_at
from tidelake.query.sql.tokens import DIALECT

_BEGINS = re.compile(r"(?:\s|--[^\n]*\n|/\*.*?\*/)*set\s", re.IGNORECASE | re.DOTALL)
_WORDS = ["set", "tide", ".", "user", "="]


def split_user(text: str) -> tuple[str | None, str]:
    """Return the user that a text names before its query, None if it names none, and the text without that."""
    if not _BEGINS.match(text):
        return None, text
    try:
        tokens = Dialect.get_or_raise(DIALECT).tokenize(text)
    except TokenError:
        return None, text  # whoever parses it says what is wrong
    if [token.text.lower() for token in tokens[:5]] != _WORDS:
        return None, text
    value = tokens[5] if len(tokens) > 5 else None
    if value is None or value.token_type is not TokenType.STRING:
        raise error_at(text, tokens[4].start, "expected a user: SET tide.user = 'alice'", kind="syntax")
    if len(tokens) > 6 and tokens[6].token_type is not TokenType.SEMICOLON:
        raise error_at(text, tokens[6].start, "expected ; and a query after the user", kind="syntax")
    end = (tokens[6] if len(tokens) > 6 else value).end + 1
    return value.text, re.sub(r"[^\n]", " ", text[:end]) + text[end:]

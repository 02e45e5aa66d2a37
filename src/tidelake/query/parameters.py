"""Put values in the places that a question in SQL leaves open, each a ``?``.

Places are found by the tokenizer, so that none is seen inside a text or a comment, and values are written as literals:
nothing in them is read as SQL. It does not know types of columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType

from tidelake.errors import InvalidInputError, QueryError


def count_places(text: str) -> int:
    """Return how many values a question needs."""
    return len(_places(text))


def with_values(text: str, values: Sequence[Any]) -> str:
    """Return a question with values in its places, the first first."""
    places = _places(text)
    if len(places) != len(values):
        raise InvalidInputError(
            "a question has as many values as places", places=len(places), values=len(values), kind="bad_parameters"
        )
    for at, value in reversed(list(zip(places, values, strict=True))):
        text = f"{text[:at]}{literal(value)}{text[at + 1 :]}"
    return text


def literal(value: Any) -> str:
    """Return a value as SQL writes it."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value)
        case float() if math.isfinite(value):
            return f"CAST('{value!r}' AS DOUBLE)"
        case float():
            return f"CAST('{'NaN' if math.isnan(value) else 'Infinity' if value > 0 else '-Infinity'}' AS DOUBLE)"
        case Decimal() if value.is_finite():
            return f"CAST('{value}' AS DECIMAL(38, {max(0, -int(value.as_tuple().exponent))}))"
        case datetime():
            own = value if value.tzinfo else value.replace(tzinfo=UTC)
            return f"TIMESTAMP '{own.astimezone(UTC).isoformat(sep=' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case bytes():
            return f"X'{value.hex()}'"
        case str():
            return exp.Literal.string(value).sql(dialect="spark")
        case _:
            raise InvalidInputError(
                "a value is text, a number, a time, bytes, true, false or null", got=type(value).__name__,
                kind="bad_parameters",
            )  # fmt: skip


def _places(text: str) -> list[int]:
    try:
        tokens = Spark().tokenize(text)
    except TokenError as error:
        raise QueryError("the text cannot be read as SQL", reason=error, kind="bad_text") from error
    return [token.start for token in tokens if token.token_type == TokenType.PLACEHOLDER]

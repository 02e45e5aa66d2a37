"""Give values to the parameters that a question in KQL declares.

``declare query_parameters(least:long, who:string = "nobody")`` names them and their types; a value takes the place of
the default. Values are written as literals: nothing in them is read as KQL. It does not parse the rest of a question.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from tidelake.errors import InvalidInputError

_DECLARED = re.compile(r"declare\s+query_parameters\s*\(", re.IGNORECASE)
_PARAMETER = re.compile(
    r"\s*([A-Za-z_]\w*)\s*:\s*(\w+)\s*(=\s*(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^,)\"']+|\([^)]*\))+)?"
)

_QUOTED = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'")
_ALIASES = {"date": "datetime", "time": "timespan", "double": "real", "boolean": "bool", "uuid": "guid"}
_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?"
_PLAIN = {
    "long": r"[+-]?\d+",
    "int": r"[+-]?\d+",
    "real": rf"{_NUMBER}|[+-]?inf|nan",
    "decimal": _NUMBER,
    "bool": "true|false|0|1",
    "datetime": r"[\w:.+\- /]{1,64}",
    "timespan": r"[\w:.+\- ]{1,64}",
    "guid": "[0-9a-f-]{32,38}",
}
_CALLED = ("datetime", "timespan", "guid", "decimal", "bool", "real")  # as which a value is written, in brackets


def with_parameters(text: str, given: dict[str, Any]) -> str:
    """Give values, as KQL writes them, to the parameters that a text declares; one that it does not is left out."""
    declared = _DECLARED.search(text)
    if declared is None or not given:
        return text
    at, parts = declared.end(), []
    while found := _PARAMETER.match(text, at):
        name, kind, default = found.groups()
        value = _literal(given[name], kind) if name in given else default and default.strip().removeprefix("=").strip()
        parts.append(f"{name}:{kind} = {value}" if value else f"{name}:{kind}")
        at = found.end()
        if text[at : at + 1] != ",":
            break
        at += 1
    return f"{text[: declared.end()]}{', '.join(parts)}{text[at:]}"


def _literal(value: Any, kind: str) -> str:
    """Return a parameter's value as KQL; a text that is such a literal already stays as it is."""
    own = _ALIASES.get(kind.lower(), kind.lower())
    if own == "string":
        text = value if isinstance(value, str) else orjson.dumps(value).decode()
        return text if _QUOTED.fullmatch(text) else orjson.dumps(text).decode()
    text = str(value).lower() if isinstance(value, bool) else str(value).strip()
    if own == "dynamic":
        return _dynamic(value)
    inner = re.fullmatch(rf"(?:{kind}|{own})\((.*)\)", text, re.IGNORECASE | re.DOTALL)
    plain = inner[1].strip() if inner else text
    if own not in _PLAIN or not re.fullmatch(f"null|{_PLAIN[own]}", plain, re.IGNORECASE):
        raise InvalidInputError("a parameter is not of its type", type=kind[:40], got=text[:80], kind="bad_parameters")
    return f"{own}({plain})" if own in _CALLED or plain == "null" else plain


def _dynamic(value: Any) -> str:
    inner = re.fullmatch(r"\s*dynamic\((.*)\)\s*", value, re.DOTALL) if isinstance(value, str) else None
    try:
        told = orjson.loads(inner[1] if inner else value) if isinstance(value, str) else value
    except ValueError as error:
        raise InvalidInputError("a dynamic parameter is JSON", kind="bad_parameters") from error
    return f"dynamic({orjson.dumps(told).decode()})"

"""Write SQL out of templates, in one syntax for every function and both engines.

- ``{0}`` is an argument, ``{*}`` all of them, ``{1*}`` those from the second on, ``{2|default}`` one that may be left
  out.
- ``<name>`` or ``<name text>`` is a macro (``macros``): what an engine says for it, with the text where it has ``#``.
- ``let[[value]][[body]]`` computes a value once; its body names it ``@``.

A template is expanded when it is first used. It does not parse SQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache

from sqlglot import exp

from tidelake.query.functions.macros import MACROS, Engine

Writer = Callable[[Sequence[exp.Expr], Sequence[str]], str]

_HOLE = re.compile(r"\{(?:(\d+)(\*)?(?:\|([^{}]*))?|(\*))\}")
_MACRO = re.compile(r"(?<!\w)<([a-z_]+)(?: ([^<>]*))?>")  # a type, as in ARRAY<VARIANT>, follows a word
_LET = re.compile(r"let\[\[(.*?)\]\]\[\[(.*?)\]\]", re.DOTALL)
_NAMING = {
    "duckdb": "list_transform([%s], lambda tide_v: %s)[1]",
    "spark": "transform(array(%s), tide_v -> %s)[0]",
}


def filled(template: str, texts: Sequence[str], engine: Engine) -> str:
    """Write a template with arguments in its holes."""

    def hole(match: re.Match[str]) -> str:
        if match[4]:
            return ", ".join(texts)
        at = int(match[1])
        if match[2]:
            return ", ".join(texts[at:])
        if at < len(texts):
            return texts[at]
        if match[3] is None:
            raise IndexError(f"argument {at} of a portable function is missing")
        return match[3]

    return _HOLE.sub(hole, expanded(template, engine))


@cache
def expanded(template: str, engine: Engine) -> str:
    """Return a template with its macros and its ``let`` written out; the holes stay."""
    while _MACRO.search(template):
        template = _MACRO.sub(lambda match: MACROS[match[1]][engine].replace("#", match[2] or ""), template)
    return _LET.sub(lambda match: named(match[1], match[2].replace("@", "tide_v"), engine), template)


def named(value: str, body: str, engine: Engine) -> str:
    """Write a value that is computed once; the body calls it ``tide_v``."""
    return _NAMING[engine] % (value, body)


def literal_text(node: exp.Expr) -> str | None:
    """Return the text of a string literal, or None."""
    return node.name if isinstance(node, exp.Literal) and node.is_string else None

"""Make writers of SQL out of templates: ``{0}`` is an argument, ``{*}`` all of them, ``{1*}`` those from the second on.

An optional argument is written ``{2|default}``. A template that begins with ``let `` uses its first argument several
times, as ``@``: it is computed once. It does not know engines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from sqlglot import exp

Writer = Callable[[Sequence[exp.Expr], Sequence[str]], str]

_HOLE = re.compile(r"\{(?:(\d+)(\*)?(?:\|([^{}]*))?|(\*))\}")


def writers(templates: str, let: str) -> dict[str, Writer]:
    """Read lines of ``name: template``; ``let`` is how the engine names a value, with %s for value and body."""
    found: dict[str, Writer] = {}
    for line in templates.strip().splitlines():
        if line and not line.startswith("#"):
            name, template = line.split(": ", 1)
            found[f"tide_{name}"] = writer(template, let)
    return found


def expanded(templates: str, macros: Mapping[str, str], let: str) -> str:
    """Write out the macros of templates; ``OF[[value]][[body]]`` names a value ``@`` in its body."""
    for mark, text in macros.items():
        if "#" not in mark:
            templates = templates.replace(mark, text)
            continue
        for at in range(10):
            templates = templates.replace(mark.replace("#", str(at)), text.replace("#", str(at)))
    return re.sub(r"OF\[\[(.*?)\]\]\[\[(.*?)\]\]", lambda m: let % (m[1], m[2].replace("@", "tide_v")), templates)


def writer(template: str, let: str) -> Writer:
    """Make a writer of one template."""

    def write(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
        if template.startswith("let "):
            return let % (texts[0], filled(template[4:].replace("@", "tide_v"), ["tide_v", *texts[1:]]))
        return filled(template, texts)

    return write


def filled(template: str, texts: Sequence[str]) -> str:
    """Put arguments into the holes of a template."""

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

    return _HOLE.sub(hole, template)


def literal_text(node: exp.Expr) -> str | None:
    """Give the text of a string literal, or None."""
    return node.name if isinstance(node, exp.Literal) and node.is_string else None


def merged(*tables: Mapping[str, Writer]) -> dict[str, Writer]:
    return {name: writer for table in tables for name, writer in table.items()}

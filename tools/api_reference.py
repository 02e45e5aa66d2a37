"""Write docs/python.md: the public names with their signatures and what their docstrings say.

    python -m tools.api_reference

A test compares the page with what would be written. It does not list what is private.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tidelake

PAGE = Path(__file__).parents[1] / "docs" / "python.md"

INTRODUCTION = """\
# Python

What can be imported from `tidelake`, and what the nouns can do. Everything else is private. [Tables](tables.md)
explains with examples.

This page is written by `python -m tools.api_reference` from the code.
"""


def reference() -> str:
    """Return the whole page."""
    functions = [name for name in tidelake.__all__ if inspect.isfunction(getattr(tidelake, name))]
    classes = [name for name in tidelake.__all__ if inspect.isclass(getattr(tidelake, name))]
    nouns = [name for name in classes if not issubclass(getattr(tidelake, name), Exception)]
    errors = [name for name in classes if issubclass(getattr(tidelake, name), Exception)]
    parts = [INTRODUCTION, "## Functions\n"]
    parts += [_callable(f"tidelake.{name}", getattr(tidelake, name)) for name in sorted(functions)]
    for name in nouns:
        parts += [f"## {name}\n", _text(getattr(tidelake, name)) + "\n"]
        parts += [_member(name, member, value) for member, value in _members(getattr(tidelake, name))]
    parts += [
        "## Errors\n",
        "Grouped by what the caller does next; [troubleshooting](troubleshooting.md) has the messages.\n",
    ]
    parts.append("| error | when |\n|---|---|")
    parts += [f"| `{name}` | {_text(getattr(tidelake, name)).splitlines()[0]} |" for name in errors]
    return "\n".join(parts) + "\n"


def _members(noun: type) -> Iterator[tuple[str, Any]]:
    for name, value in vars(noun).items():
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property | classmethod)):
            yield name, value


def _member(noun: str, name: str, value: Any) -> str:
    if isinstance(value, property):
        return f"### {noun.lower()}.{name}\n\n{_text(value.fget)}\n"
    if isinstance(value, classmethod):
        return _callable(f"{noun}.{name}", value.__func__)
    return _callable(f"{noun.lower()}.{name}", value)


def _callable(title: str, function: Any) -> str:
    signature = inspect.signature(function)
    kept = [parameter for name, parameter in signature.parameters.items() if name not in ("self", "cls")]
    told = str(signature.replace(parameters=kept))
    name = title.rpartition(".")[2]
    return f"### {title}\n\n```text\n{name}{_plain(told)}\n```\n\n{_text(function)}\n"


def _plain(signature: str) -> str:
    """Write types as a reader of the page knows them."""
    without_quotes = re.sub(r"'([^']*)'(?=[,)\s]|$)", r"\1", signature)
    return re.sub(r"\b(?:tidelake|collections\.abc|datetime|typing)\.(?:\w+\.)*", "", without_quotes)


def _text(documented: Any) -> str:
    text = inspect.getdoc(documented) or ""
    return re.sub(r"``([^`]*)``", r"`\1`", text)


if __name__ == "__main__":
    PAGE.write_text(reference())

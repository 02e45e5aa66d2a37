"""Declare what takes texts of known shapes apart: URLs, paths, CSV, XML, command lines.

Each is a function of one row's texts. It does not fetch what a text names.
"""

from __future__ import annotations

import csv
import io
import re
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from xml.parsers import expat

from tidelake.query.functions.declaration import Function, declare
from tidelake.query.functions.python import dumped


def parse_url(text: str) -> str:
    parts = urlsplit(text)
    host = parts.hostname or ""
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return dumped({
        "Scheme": parts.scheme, "Host": host, "Port": str(parts.port or ""), "Path": parts.path,
        "Username": parts.username or "", "Password": parts.password or "", "Query Parameters": query,
        "Fragment": parts.fragment,
    })  # fmt: skip


def parse_urlquery(text: str) -> str:
    return dumped({"Query Parameters": dict(parse_qsl(text.lstrip("?"), keep_blank_values=True))})


def parse_path(text: str) -> str:
    """Take a path apart: of its drive and of a stream only a letter and a name after the file's count."""
    scheme, mark, rest = text.partition("://")
    path = rest if mark else text
    drive = path[:2] if path[1:2] == ":" and path[:1].isalpha() else ""
    last = max(path.rfind("/"), path.rfind("\\"))
    folder = path[len(drive) : max(last, len(drive))]
    name, _, stream = path[max(last + 1, len(drive)) :].partition(":")
    return dumped({
        "Scheme": scheme if mark else "", "RootPath": drive, "DirectoryPath": drive + folder,
        "DirectoryName": re.split(r"[/\\]", folder)[-1], "Filename": name,
        "Extension": name.rpartition(".")[2] if "." in name else "", "AlternateDataStreamName": stream,
    })  # fmt: skip


def parse_csv(text: str) -> str:
    """Return the fields of the first record."""
    return dumped(next(csv.reader(io.StringIO(text, newline="")), None) or [""])


def parse_xml(text: str) -> str:
    """Read XML as nested maps: attributes under ``@name``, text under ``#text``, repeats as a list."""
    stack: list[dict[str, Any]] = [{}]
    parser = expat.ParserCreate()

    def start(name: str, attributes: dict[str, str]) -> None:
        if len(stack) > 100:
            raise ValueError("nested too deeply")
        stack.append({f"@{key}": value for key, value in attributes.items()})

    def data(words: str) -> None:
        if words.strip():
            stack[-1]["#text"] = stack[-1].get("#text", "") + words

    def end(name: str) -> None:
        node = stack.pop()
        value: Any = node.get("#text", "") if set(node) <= {"#text"} else node
        held = stack[-1].get(name)
        if held is None:
            stack[-1][name] = value
        elif isinstance(held, list):
            held.append(value)
        else:
            stack[-1][name] = [held, value]

    parser.StartElementHandler, parser.CharacterDataHandler, parser.EndElementHandler = start, data, end
    parser.EntityDeclHandler = _refuse
    parser.Parse(text, True)
    return dumped(stack[0])


def _refuse(*_: Any) -> None:
    raise ValueError("entities are not read")


def parse_command_line(text: str, kind: str | None) -> str:
    """Split a command as Windows does: quotes hold words together, and backslashes count only before a quote."""
    if kind is not None and kind.lower() != "windows":
        raise ValueError("only windows is known")
    found: list[str] = []
    word: str | None = None
    at, quoted = 0, False
    while at < len(text):
        slashes = len(text[at:]) - len(text[at:].lstrip("\\"))
        at += slashes
        is_quote = text[at : at + 1] == '"'
        if slashes:
            word = (word or "") + "\\" * (slashes // 2 if is_quote else slashes)
        if is_quote and slashes % 2:
            word = (word or "") + '"'
        elif is_quote:
            doubled = quoted and text[at + 1 : at + 2] == '"'
            word = (word or "") + ('"' if doubled else "")
            at += doubled
            quoted = not quoted
        elif text[at : at + 1] in (" ", "\t") and not quoted:
            found += [word] if word is not None else []
            word = None
        else:
            word = (word or "") + text[at : at + 1] if at < len(text) else word
        at += 1
    return dumped([*found, word] if word is not None else found)


FUNCTIONS: tuple[Function, ...] = (
    declare("parse_url", returns="dynamic", python=parse_url, arity=1),
    declare("parse_urlquery", returns="dynamic", python=parse_urlquery, arity=1),
    declare("parse_path", returns="dynamic", python=parse_path, arity=1),
    declare("parse_csv", returns="dynamic", python=parse_csv, arity=1),
    declare("parse_xml", returns="dynamic", python=parse_xml, arity=1),
    declare("parse_command_line", returns="dynamic", python=parse_command_line, arity=2),
)

"""Describe the routes of a server as OpenAPI does, from the routes themselves.

Every address is there with its methods; of the doors that say what they take, parameters and bodies too. A test asks
every address, and gives every parameter that is described. It does not describe the protocols that others specify.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tidelake.server.call import JSON, Answer, Route
from tidelake.server.doors.base import About, Asked, Door

VERSION = "3.1.0"
_PART = re.compile(r"\{(\w+)(?::\w+)?\}")


def described(doors: Mapping[str, Sequence[Door]], protocols: Mapping[str, Sequence[Route]]) -> dict[str, Any]:
    """Return the description of all addresses."""
    paths: dict[str, Any] = {}
    named: list[tuple[str, Sequence[Door | Route]]] = [*doors.items(), *protocols.items()]
    for tag, several in named:
        for each in several:
            told = paths.setdefault(_PART.sub(r"{\1}", each.path), {})
            for method in each.methods:
                told.setdefault(method.lower(), _operation(each, tag, method))
    return {
        "openapi": VERSION,
        "info": {"title": "tidelake", "version": "1", "description": "Ask a lake, and append to it."},
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": _ERROR},
        },
        "security": [{"token": []}, {}],
    }


def _operation(route: Door | Route, tag: str, method: str) -> dict[str, Any]:
    about = (route.about if isinstance(route, Door) else None) or About(_summary(route))
    parameters = [_parameter(name, "path", f"the {name}") for name in _PART.findall(route.path)]
    parameters += [_parameter(name, "query", said) for name, said in about.query.items()]
    told: dict[str, Any] = {
        "tags": [tag],
        "summary": about.summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "The answer.", "content": {about.answer: {}}},
            "default": {"description": "A refusal.", "content": {JSON: {"schema": _REFERENCE}}},
        },
    }
    if method in ("POST", "PUT"):
        members = {name: {"description": said} for name, said in about.body.items()}
        schema = {"type": "object", "properties": members, "additionalProperties": False} if members else {}
        told["requestBody"] = {"content": {JSON if members else "*/*": {"schema": schema}}}
    return told


def _summary(route: Door | Route) -> str:
    said = (route.answer if isinstance(route, Door) else route.decode).__doc__ or ""
    return said.strip().partition("\n")[0]


def _parameter(name: str, place: str, said: str) -> dict[str, Any]:
    return {
        "name": name,
        "in": place,
        "required": place == "path",
        "description": said,
        "schema": {"type": "string"},
    }


_REFERENCE = {"$ref": "#/components/schemas/Error"}
_ERROR = {
    "type": "object",
    "properties": {"error": {"type": "string"}, "kind": {"type": "string"}},
    "required": ["error", "kind"],
}


async def answer_openapi(asked: Asked) -> Answer:
    """Answer with this description."""
    return Answer.json(asked.description())


DOORS = (Door("/v1/openapi.json", answer_openapi, ("GET",), role="", about=About("This description.")),)

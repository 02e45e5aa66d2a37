"""Run a registry of schemas, as Kafka's clients speak to one, in this process and in memory.

Schemas are registered, asked for by their number, their GUID and by subject and version, and numbered from 1. Protobuf
is told in its serialized form to those who ask for it, and in words to others. It does not check that a schema is one,
or that versions go together.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class _Held(ThreadingHTTPServer):
    daemon_threads = True
    schemas: list[dict[str, Any]]
    subjects: dict[str, list[int]]
    guard: threading.Lock


class _Handler(BaseHTTPRequestHandler):
    server: _Held

    def do_POST(self) -> None:
        """Register a schema under a subject."""
        subject = unquote(urlsplit(self.path).path.split("/")[2])
        given = json.loads(self.rfile.read(int(self.headers["content-length"])))
        schema = {"schemaType": "AVRO", "references": []} | given
        with self.server.guard:
            if schema not in self.server.schemas:
                self.server.schemas.append(schema)
            number = self.server.schemas.index(schema) + 1
            versions = self.server.subjects.setdefault(subject, [])
            if number not in versions:
                versions.append(number)
        self._answer({"id": number, "guid": _guid(number), **schema})

    def do_GET(self) -> None:
        """Tell a schema by its number, or by subject and version."""
        parts = [unquote(part) for part in urlsplit(self.path).path.split("/")[1:]]
        schemas, subjects = self.server.schemas, self.server.subjects
        if parts[:2] == ["schemas", "guids"]:
            parts = ["schemas", "ids", str(uuid.UUID(parts[2]).int)]
        if parts[:2] == ["schemas", "ids"] and 0 < int(parts[2]) <= len(schemas):
            self._answer(self._told(int(parts[2])))
        elif parts[0] == "subjects" and len(parts) == 4 and parts[1] in subjects:
            versions = subjects[parts[1]]
            version = len(versions) if parts[3] == "latest" else int(parts[3])
            number = versions[version - 1]
            self._answer({"subject": parts[1], "version": version, "id": number, **self._told(number)})
        else:
            self._answer({"error_code": 40403, "message": "Schema not found"}, 404)

    def _told(self, number: int) -> dict[str, Any]:
        schema = {"guid": _guid(number), **self.server.schemas[number - 1]}
        is_plain = parse_qs(urlsplit(self.path).query).get("format") != ["serialized"]
        return schema | {"schema": "// in words"} if is_plain and schema["schemaType"] == "PROTOBUF" else schema

    def _answer(self, value: Any, status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/vnd.schemaregistry.v1+json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _guid(number: int) -> str:
    return str(uuid.UUID(int=number))


@contextmanager
def schema_registry() -> Iterator[str]:
    """Yield the address of a registry that is empty."""
    server = _Held(("127.0.0.1", 0), _Handler)
    server.schemas, server.subjects, server.guard = [], {}, threading.Lock()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

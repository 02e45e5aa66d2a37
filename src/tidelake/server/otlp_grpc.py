"""Speak OTLP over gRPC, in the event loop of the server: the same decoders, tables, tokens and keys as over HTTP.

What is to be tried again is UNAVAILABLE with RetryInfo, what never will succeed INVALID_ARGUMENT. Requests are taken as
bytes, so that nothing is parsed twice. It does not decode: see ``protocols.otlp``.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from tidelake.catalog.protocol import now_us
from tidelake.errors import TidelakeError, UnavailableError
from tidelake.server.call import Call, Route, first_error
from tidelake.server.http import TENANT_HEADERS, Doors, key_of
from tidelake.server.protocols.otlp import GRPC_CODES, PROTOBUF, ROUTES, SIGNALS, UNKNOWN_CODE, Signal, status_bytes
from tidelake.server.refusals import Failure, failure_of
from tidelake.server.settings import ServeSettings

PROTOCOL = "otlp_grpc"
HEADER_BYTES = 64 << 10

_CODES = {code.value[0]: code for code in grpc.StatusCode}


async def start_grpc(doors: Doors, settings: ServeSettings) -> grpc.aio.Server | None:
    """Listen for OTLP over gRPC, if there is a port for it."""
    if not settings.otlp_port:
        return None
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", settings.max_body_bytes),
            ("grpc.max_metadata_size", HEADER_BYTES),
            ("grpc.so_reuseport", int(settings.processes > 1)),
        ]
    )
    for signal, route in zip(SIGNALS, ROUTES, strict=True):
        service = f"opentelemetry.proto.collector.{signal.service}"
        method = grpc.unary_unary_rpc_method_handler(_export(doors, signal, route))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Export": method}),))
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    try:
        if settings.tls_certificate and settings.tls_key:
            pair = Path(settings.tls_key).read_bytes(), Path(settings.tls_certificate).read_bytes()
            port = server.add_secure_port(f"{host}:{settings.otlp_port}", grpc.ssl_server_credentials([pair]))
        else:
            port = server.add_insecure_port(f"{host}:{settings.otlp_port}")
    except RuntimeError:
        port = 0
    if not port:
        raise UnavailableError(
            "cannot listen for OTLP", host=settings.host, port=settings.otlp_port, kind="cannot_listen"
        )
    await server.start()
    return server


def _export(doors: Doors, signal: Signal, route: Route) -> Callable[[bytes, Any], Awaitable[bytes]]:
    async def export(body: bytes, context: Any) -> bytes:
        began_s = time.monotonic()
        headers = {name: value for name, value in context.invocation_metadata() if isinstance(value, str)}
        headers["content-type"] = PROTOBUF
        failure = None
        try:
            return await _stored(doors, route, Call(body, headers, received_us=now_us()))
        except TidelakeError as error:
            failure = failure_of(error)
        except Exception as error:
            doors.meters.defect(PROTOCOL, error)
            failure = failure_of(error)
        finally:
            status = 200 if failure is None else failure.status
            doors.meters.answered(PROTOCOL, status, len(body), time.monotonic() - began_s)
        await _fail(context, failure)
        return b""

    return export


async def _stored(doors: Doors, route: Route, call: Call) -> bytes:
    grant = await doors.grant(call.headers)
    grant.check(route.role)
    namespace = grant.namespace(next((call.headers[name] for name in TENANT_HEADERS if name in call.headers), None))
    call = Call(call.body, call.headers, namespace=namespace, received_us=call.received_us)
    doors.keeper.allowance.request(grant)
    doors.budget.take(len(call.body))
    try:
        call, work = await doors.decoded(call, "", route.decode)
        outcomes = await doors.staged(work, call, grant, key_of(call, is_once=route.is_once), len(call.body))
    finally:
        doors.budget.give(len(call.body))
    if (error := first_error(outcomes)) is not None:
        raise error
    return work.answer(outcomes).body


async def _fail(context: Any, failure: Failure) -> None:
    code = GRPC_CODES.get(failure.status, UNKNOWN_CODE)
    details = (("grpc-status-details-bin", status_bytes(code, failure)),)
    await context.abort(_CODES[code], failure.message, details)

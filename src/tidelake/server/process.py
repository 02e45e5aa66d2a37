"""Run a server: open the lake, listen, and stop without losing what was taken.

One process with one event loop, or several such at the same ports: then the first has those doors that there is one of
(Flight, syslog, Kafka). Decoding and committing run in threads, in code that lets the others run. At SIGTERM or SIGINT:
it says that it is not ready and accepts no connections any more; requests that are under way are answered, what is
staged is committed; then it ends. A second signal ends it at once, and loses nothing that was acknowledged either.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import socket
import ssl
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from subprocess import DEVNULL
from typing import Any, cast

import pyarrow as pa
import uvicorn
import uvloop
from starlette.routing import Router
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tidelake.catalog.protocol import parse_table_name
from tidelake.errors import InvalidInputError, TidelakeError, UnavailableError, redacted
from tidelake.lake import Lake, connect
from tidelake.runtime.readiness import has_loops
from tidelake.server.access import has_tokens
from tidelake.server.credentials import Keeper
from tidelake.server.doors import DOORS
from tidelake.server.doors.base import opened
from tidelake.server.doors.openapi import described
from tidelake.server.http import ABORT, Doors, make_app
from tidelake.server.memory import Budget
from tidelake.server.meters import Meters
from tidelake.server.otlp_grpc import start_grpc
from tidelake.server.own_traces import OwnTraces
from tidelake.server.page.doors import PAGE_DOORS
from tidelake.server.page.serving import page_routes
from tidelake.server.protocols import PROTOCOLS
from tidelake.server.questions import AT_ONCE, Limits, Questions
from tidelake.server.settings import ServeSettings, read_options
from tidelake.server.siblings import Family, Siblings, bind, check_free, share_of
from tidelake.server.staging import Staging
from tidelake.server.syslog import SyslogListener
from tidelake.server.wire.warming import is_warm, warm
from tidelake.spark.schema_registry import decoder_of
from tidelake.write.messages import parse_topics

HEADER_BYTES = 64 << 10  # of a request, with its address
HEADER_WITHIN_S = 20.0  # a request's headers must come, once a connection is there
KEEP_ALIVE_S = 75
TOKENS_LOOK_S = 5.0  # how often to look whether there are tokens by now
READY_WITHIN_S = 2.0
READY_KEPT_S = 1.0
WARM_LOOK_S = 1.0
LEAST_AT_ONCE = 2  # questions of a process, however many processes there are

log = logging.getLogger("tidelake.server")


def serve(settings: ServeSettings, *, ready: Callable[[str], None] | None = None) -> None:
    """Run a server until it is told to stop; ``ready`` hears where it listens."""
    _log_to_stderr(settings.log_level)
    with connect(
        settings.lake, objects=settings.objects, endpoint=settings.endpoint, deadline=settings.deadline_s
    ) as lake:
        _check_open(settings, lake)
        with ExitStack() as held, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            listeners = bind(settings.host, settings.port, settings.processes)
            for listener in listeners:
                held.enter_context(listener)
            family = None
            if settings.processes > 1:
                if settings.otlp_port:
                    check_free(settings.host, settings.otlp_port, "cannot listen for OTLP")
                family = Family(settings, listeners)
                held.callback(family.close)
            runner.run(_serve(settings, lake, listeners[0], ready, family))


def serve_beside(settings: ServeSettings, listener: socket.socket, siblings: Siblings) -> None:
    """Run one more process of a server until the first one ends, or tells it to stop."""
    _log_to_stderr(settings.log_level)
    with (
        connect(
            settings.lake, objects=settings.objects, endpoint=settings.endpoint, deadline=settings.deadline_s
        ) as lake,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        runner.run(_serve(settings, lake, listener, None, None, siblings))


async def _serve(
    settings: ServeSettings,
    lake: Lake,
    listener: socket.socket,
    ready: Callable[[str], None] | None,
    family: Family | None = None,
    siblings: Siblings | None = None,
) -> None:
    siblings = siblings or (family.siblings if family is not None else Siblings())
    settings = share_of(settings)
    loop = asyncio.get_running_loop()
    meters, budget = Meters(), Budget(settings.memory_bytes, settings.table_memory_bytes)
    meters.watch_held(lambda: budget.held)
    lake.handle.told["system.requests"] = lambda: meters.requests(siblings.ask("requests"))
    staging = Staging(lake.handle, budget, meters, linger_s=settings.linger_ms / 1000, creates=settings.create_tables)
    keeper = Keeper(lake.store, required=_needs_tokens(settings, lake), buckets=siblings.buckets())
    doors = Doors(settings, staging, budget, meters, keeper, siblings)
    syslog = SyslogListener(staging, meters.dropped)
    stopping = asyncio.Event()
    questions = Questions(
        lake,
        Limits(settings.query_seconds, settings.query_memory_bytes, settings.result_cache_bytes),
        at_once=max(LEAST_AT_ONCE, AT_ONCE // siblings.count),
        siblings=siblings,
    )
    meters.watch_answers(questions.kept)
    app = whole_app(doors, lake, questions, _Readiness(lake, staging, stopping).check)
    server = _HttpServer(_http_config(settings, app))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, stopping, loop, number)
    if not siblings.is_first:
        threading.Thread(target=_stop_at_the_end, args=(stopping, loop), daemon=True).start()
    if family is not None:
        await family.start()  # before there are threads of gRPC, which dislike it
    hearing: asyncio.Server | None = None
    otlp = await start_grpc(doors, settings)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    warming = asyncio.create_task(_warm(doors, compiles=siblings.is_first))
    looking = asyncio.create_task(_look_for_tokens(settings, lake, keeper))
    traces = None
    if settings.own_traces is not None:
        table = ".".join(parse_table_name(settings.own_traces))
        meters.spans = traces = OwnTraces(staging, table, meters.lost_spans)
    telling = asyncio.create_task(traces.run()) if traces is not None else None
    try:
        if settings.syslog_port and siblings.is_first:
            await _listen_for_syslog(settings, keeper, syslog)
        feed = _kafka_feed(settings, lake) if siblings.is_first else None
        door = _flight_door(settings, lake, questions, keeper) if siblings.is_first else None
        hearing = await siblings.listen(
            {
                "there": lambda: True,
                "meters": meters.text,
                "requests": meters.newest,
                **questions.running.answers(),
            }
        )
        if family is not None:
            await family.gathered()
        scheme = "https" if settings.tls_certificate else "http"
        host, port = listener.getsockname()[:2]
        address = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
        log.info("serving lake=%s at=%s", redacted(lake.where), address)
        if ready is not None:
            ready(address)
        waiting = asyncio.create_task(stopping.wait())
        await asyncio.wait({waiting, serving}, return_when=asyncio.FIRST_COMPLETED)
        log.info("stopping")
        parting = asyncio.create_task(family.stop()) if family is not None else None
        if feed is not None:
            await loop.run_in_executor(None, feed.stop)
        server.should_exit = True
        if otlp is not None:
            await otlp.stop(settings.drain_s)
        await serving
        await syslog.stop()
        if door is not None:
            await loop.run_in_executor(None, door.shutdown)
        if traces is not None:
            await traces.store()
        await staging.drain()
        await loop.run_in_executor(None, keeper.allowance.exchange_all)
        if parting is not None:
            await parting
    finally:
        if family is not None:
            await family.stop()
        if hearing is not None:
            hearing.close()
        if not serving.done():  # it could not be started whole
            server.should_exit = server.force_exit = True
            await asyncio.wait({serving})
            if otlp is not None:
                await otlp.stop(None)
        if telling is not None:
            telling.cancel()
        looking.cancel()
        warming.cancel()
        doors.threads.shutdown(wait=False, cancel_futures=True)
        questions.close()
    log.info("stopped")


def whole_app(doors: Doors, lake: Lake, questions: Questions, ready: Callable[[], Awaitable[None]]) -> Router:
    """Return the application with every address that a server has."""
    asked = {**DOORS, "page": PAGE_DOORS}
    others = [*page_routes(), *opened(asked, doors, lake, questions, partial(described, asked, PROTOCOLS))]
    return make_app(doors, PROTOCOLS, ready, others)


async def _listen_for_syslog(settings: ServeSettings, keeper: Keeper, syslog: SyslogListener) -> None:
    """Listen for syslog, which has no tokens: where they are required, on this machine only, or if that is said."""
    if keeper.required and not settings.is_loopback and not settings.open:
        raise InvalidInputError(
            f"syslog has no tokens, and {settings.host} can be reached from elsewhere: say open = true too",
            kind="no_tokens",
        )
    try:
        await syslog.start(settings.host, settings.syslog_port)
    except OSError as error:
        raise UnavailableError(
            "cannot listen for syslog", host=settings.host, port=settings.syslog_port, reason=error.strerror or error,
            kind="cannot_listen",
        ) from error  # fmt: skip
    log.info("syslog at=%s:%d", settings.host, settings.syslog_port)


def _flight_door(settings: ServeSettings, lake: Lake, questions: Questions, keeper: Keeper) -> Any:
    """Listen for Flight SQL, unless that is not wanted."""
    if not settings.flight_port:
        return None
    from tidelake.server.flight import FlightDoor

    try:
        door = FlightDoor(lake, questions, keeper, settings)
    except (OSError, pa.ArrowException) as error:
        raise UnavailableError(
            "cannot listen for Flight", host=settings.host, port=settings.flight_port, kind="cannot_listen"
        ) from error
    log.info("flight at=%s:%d", settings.host, door.port)
    return door


def _kafka_feed(settings: ServeSettings, lake: Lake) -> Any:
    """Begin to take messages from Kafka, if that is asked for."""
    if settings.kafka is None:
        return None
    try:
        from tidelake.server.kafka import KafkaFeed, KafkaSettings
    except ImportError as error:
        raise UnavailableError(
            "messages from Kafka need the extra kafka: pip install 'tidelake[kafka]'", kind="not_installed"
        ) from error
    tables = parse_topics(settings.kafka_topics or "")
    decoder = None
    if settings.kafka_registry is not None:
        decoder = decoder_of({**read_options(settings.kafka_registry_options), "url": settings.kafka_registry})
    options = read_options(settings.kafka_options)
    feed = KafkaFeed(lake.handle, KafkaSettings(settings.kafka, tables, settings.kafka_group, options, decoder))
    feed.start()
    log.info("kafka topics=%s group=%s", ",".join(tables), settings.kafka_group)
    return feed


async def _warm(doors: Doors, *, compiles: bool) -> None:
    """Have the loops of decoders compiled by another process, then load them; until then, what is plain serves."""
    while not compiles and not is_warm():  # the first process sees to it
        await asyncio.sleep(WARM_LOOK_S)
    has_loops()  # has what others share compiled, too, before the first rows need it
    if not is_warm():
        module = "tidelake.server.wire.warming"
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", module, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True
        )
        await child.wait()  # should the server stop first, the next one finds what it leaves
    try:
        await asyncio.get_running_loop().run_in_executor(None, warm)
    except Exception as error:  # the plain readers go on
        log.warning("decoders are not compiled: %r", error)
    doors.is_warm = True


def _stop(stopping: asyncio.Event, loop: asyncio.AbstractEventLoop, number: signal.Signals) -> None:
    stopping.set()
    loop.remove_signal_handler(number)  # the next one ends the process


def _stop_at_the_end(stopping: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
    """Have a process stop when the one that started it ends, or says so by closing what this one reads."""
    sys.stdin.buffer.read()
    with suppress(RuntimeError):  # it has stopped by itself
        loop.call_soon_threadsafe(stopping.set)


class _HttpServer(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the process."""
        yield


class _BoundedHttp(HttpToolsProtocol):
    """HTTP whose headers are bounded in size, and in how long they take to come."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_bytes, self._is_head = 0, True
        self._late = self.loop.call_later(HEADER_WITHIN_S, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._late.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._is_head and self._head_bytes > HEADER_BYTES and not self.transport.is_closing():
            self.send_400_response("The headers are too large.")

    def on_message_begin(self) -> None:
        self._head_bytes, self._is_head = 0, True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_head = False
        self._late.cancel()
        extensions: dict[str, Any] = {ABORT: self.transport.abort}
        self.scope["extensions"] = cast(Any, extensions)
        super().on_headers_complete()

    def _give_up(self) -> None:
        if self._is_head and not self.transport.is_closing():
            self.transport.close()


def _http_config(settings: ServeSettings, app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=_BoundedHttp,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(settings.drain_s) or None,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        ssl_version=ssl.PROTOCOL_TLS_SERVER,
    )


class _Readiness:
    """Whether requests can be taken: the catalog answers, and nobody has asked the server to stop."""

    def __init__(self, lake: Lake, staging: Staging, stopping: asyncio.Event) -> None:
        self._lake, self._staging, self._stopping = lake, staging, stopping
        self._until_s = 0.0

    async def check(self) -> None:
        """Raise if not."""
        if self._stopping.is_set():
            raise UnavailableError("the server is stopping", kind="stopping")
        if time.monotonic() < self._until_s:
            return
        asking = asyncio.get_running_loop().run_in_executor(None, self._lake.catalog.tables, "default")
        try:
            await asyncio.wait_for(asking, READY_WITHIN_S)
        except TimeoutError:
            raise UnavailableError("the catalog does not answer", kind="catalog_away") from None
        self._until_s = time.monotonic() + READY_KEPT_S


async def _look_for_tokens(settings: ServeSettings, lake: Lake, keeper: Keeper) -> None:
    """Require tokens as soon as there are any."""
    while settings.tokens == "auto" and not keeper.required:
        await asyncio.sleep(TOKENS_LOOK_S)
        try:
            keeper.required = await asyncio.get_running_loop().run_in_executor(None, has_tokens, lake.store)
        except TidelakeError as error:
            log.warning("tokens cannot be looked for: %s", redacted(str(error)))


def _needs_tokens(settings: ServeSettings, lake: Lake) -> bool:
    return settings.tokens == "required" or (settings.tokens == "auto" and has_tokens(lake.store))


def _check_open(settings: ServeSettings, lake: Lake) -> None:
    """Refuse to let everybody in who can reach an address that is not this machine's own."""
    if settings.is_loopback or _needs_tokens(settings, lake) or (settings.tokens == "off" and settings.open):
        return
    raise InvalidInputError(
        f"{settings.host} can be reached from elsewhere and there are no tokens: make one with tidelake tokens create, "
        "or say both --tokens off and --open",
        kind="no_tokens",
    )


class _JsonLines(logging.Formatter):
    """A line of JSON for each event."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": f"{self.formatTime(record, '%Y-%m-%dT%H:%M:%S')}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(record.getMessage()),
        }
        if record.exc_info:
            told["trace"] = redacted(self.formatException(record.exc_info))
        return json.dumps(told, ensure_ascii=False)

    converter = staticmethod(time.gmtime)


def _log_to_stderr(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    for name in ("tidelake", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level.upper() if name == "tidelake" else "WARNING")

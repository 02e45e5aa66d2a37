"""Read how a server is to run: from a file, the environment and the command line, each over the one before.

::

    # serve.toml
    lake = "postgresql://…"
    objects = "s3://bucket/prefix"
    host = "0.0.0.0"
    port = 8080
    tls_certificate = "server.pem"
    tls_key = "server.key"

The environment has the same names, ``TIDELAKE_SERVE_PORT``. Everything that is wrong is told at once, a line each. It
does not start anything.
"""

from __future__ import annotations

import ipaddress
import ssl
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tidelake.catalog.protocol import parse_table_name
from tidelake.errors import InvalidInputError
from tidelake.write.messages import parse_topics

ENVIRONMENT = "TIDELAKE_SERVE_"
OFF = 0  # as a port


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """How a server runs."""

    lake: str = "lake"
    objects: str | None = None
    endpoint: str | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    otlp_port: int = 4317
    flight_port: int = 8815
    syslog_port: int = OFF
    processes: int = 1  # that serve HTTP and OTLP, at the same ports
    tokens: str = "auto"  # required | off | auto: required if there are any
    open: bool = False  # said twice: without tokens, on more than this machine
    tls_certificate: str | None = None
    tls_key: str | None = None
    max_body_bytes: int = 64 << 20  # decompressed
    memory_bytes: int = 256 << 20  # of requests on their way, in all
    table_memory_bytes: int = 128 << 20  # of these, for one table
    linger_ms: int = 100
    deadline_s: float = 10.0  # after which a catalog or store that does not answer is away
    drain_s: float = 30.0
    create_tables: bool = True
    query_seconds: float = 60.0  # that a question may take at most
    query_memory_bytes: int = 1 << 30
    result_cache_bytes: int = 64 << 20  # of answers that are kept while no table changes; 0 keeps none
    kafka: str | None = None  # bootstrap servers
    kafka_topics: str | None = None  # topic=namespace.table, …
    kafka_group: str = "tidelake"
    kafka_options: str | None = field(
        default=None, repr=False
    )  # more for the client: security.protocol=SASL_SSL,sasl.username=…
    kafka_registry: str | None = field(default=None, repr=False)  # where the schemas are of messages that name one
    kafka_registry_options: str | None = field(default=None, repr=False)  # basic.auth.user.info=user:password, …
    own_traces: str | None = None  # the table that spans of its own requests and commits go to
    log_level: str = "info"

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)


class Mistakes(InvalidInputError):
    """What is wrong with settings, a line each."""

    def __init__(self, lines: list[str]) -> None:
        super().__init__("; ".join(lines), kind="bad_settings")
        self.lines = lines


def is_loopback(host: str) -> bool:
    """Whether an address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def read_settings(file: str | None, environment: Mapping[str, str], given: Mapping[str, Any]) -> ServeSettings:
    """Unite a file, the environment and the command line; Mistakes has a line for everything that is wrong."""
    mistakes: list[str] = []
    values: dict[str, Any] = {}
    kinds = {each.name: str(each.type) for each in fields(ServeSettings)}
    for name, value in _of_file(file, mistakes).items():
        if name not in kinds:
            mistakes.append(f"{file}: there is no setting {name!r}")
        elif (fitted := _fitted(kinds[name], value)) is None:
            mistakes.append(f"{file}: {name} = {value!r} is not {_said(kinds[name])}")
        else:
            values[name] = fitted
    for variable, text in environment.items():
        name = variable.removeprefix(ENVIRONMENT).lower()
        if not variable.startswith(ENVIRONMENT):
            continue
        if name not in kinds:
            mistakes.append(f"{variable}: there is no setting {name!r}")
        elif (fitted := _parsed(kinds[name], text)) is None:
            mistakes.append(f"{variable}={text!r} is not {_said(kinds[name])}")
        else:
            values[name] = fitted
    settings = ServeSettings(**{**values, **{name: value for name, value in given.items() if value is not None}})
    mistakes += _wrong(settings)
    if mistakes:
        raise Mistakes(mistakes)
    return settings


def read_options(text: str | None) -> dict[str, str]:
    """Read ``name=value, …``, as a client of another's takes its options."""
    parts = (part.strip().split("=", 1) for part in (text or "").split(",") if "=" in part)
    return {name.strip(): value for name, value in parts}


def _of_file(file: str | None, mistakes: list[str]) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        return tomllib.loads(Path(file).read_text())
    except (OSError, UnicodeDecodeError) as error:
        mistakes.append(f"{file}: cannot be read: {error.__class__.__name__}")
    except tomllib.TOMLDecodeError as error:
        mistakes.append(f"{file}: not TOML: {error}")
    return {}


def _said(kind: str) -> str:
    return {"int": "a whole number", "float": "a number", "bool": "true or false"}.get(kind, "text")


def _fitted(kind: str, value: Any) -> Any:
    match kind, value:
        case "bool", bool():
            return value
        case "int", int() if not isinstance(value, bool):
            return value
        case "float", int() | float() if not isinstance(value, bool):
            return float(value)
        case "str" | "str | None", str():
            return value
        case _:
            return None


def _parsed(kind: str, text: str) -> Any:
    try:
        match kind:
            case "bool":
                return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.lower()]
            case "int":
                return int(text)
            case "float":
                return float(text)
            case _:
                return text
    except (ValueError, KeyError):
        return None


def _wrong(settings: ServeSettings) -> list[str]:
    """Return what is wrong with settings that are each of their type."""
    ports = {name: getattr(settings, name) for name in ("port", "otlp_port", "flight_port", "syslog_port")}
    wrong = [f"{name} = {port}: a port is 0 to 65535" for name, port in ports.items() if not 0 <= port <= 65535]
    used = [port for port in ports.values() if port > 0]
    if len(set(used)) < len(used):
        wrong.append("two ports are the same")
    rules: dict[str, tuple[Callable[[Any], bool], str]] = {
        "processes": (lambda v: 1 <= v <= 64, "is 1 to 64"),
        "tokens": (lambda v: v in ("auto", "required", "off"), "is auto, required or off"),
        "log_level": (lambda v: v in ("debug", "info", "warning", "error"), "is debug, info, warning or error"),
        "max_body_bytes": (lambda v: 1 << 10 <= v <= 1 << 30, "is 1 KiB to 1 GiB"),
        "memory_bytes": (lambda v: v >= 1 << 20, "is at least 1 MiB"),
        "table_memory_bytes": (lambda v: v >= 1 << 20, "is at least 1 MiB"),
        "linger_ms": (lambda v: 0 <= v <= 200, "is 0 to 200"),
        "deadline_s": (lambda v: 0.1 <= v <= 600, "is 0.1 to 600"),
        "query_seconds": (lambda v: 0.1 <= v <= 86_400, "is 0.1 to 86,400"),
        "query_memory_bytes": (lambda v: v >= 64 << 20, "is at least 64 MiB"),
        "result_cache_bytes": (lambda v: v >= 0, "is at least 0"),
        "drain_s": (lambda v: 0 <= v <= 600, "is 0 to 600"),
    }
    for name, (is_right, rule) in rules.items():
        if not is_right(getattr(settings, name)):
            wrong.append(f"{name} = {getattr(settings, name)!r}: it {rule}")
    if (settings.tls_certificate is None) != (settings.tls_key is None):
        wrong.append("tls_certificate and tls_key go together")
    places = {name: place for name in ("tls_certificate", "tls_key") if (place := getattr(settings, name)) is not None}
    missing = [f"{name}: there is no file {place!r}" for name, place in places.items() if not Path(place).is_file()]
    wrong += missing
    if len(places) == 2 and not missing and (reason := _tls_mistake(*places.values())):
        wrong.append(f"tls_certificate and tls_key: not a certificate and its key, as PEM without a password: {reason}")
    if (settings.kafka is None) != (settings.kafka_topics is None):
        wrong.append("kafka and kafka_topics go together")
    if settings.kafka_topics is not None:
        try:
            parse_topics(settings.kafka_topics)
        except InvalidInputError as error:
            wrong.append(f"kafka_topics: {error}")
    if settings.own_traces is not None:
        try:
            parse_table_name(settings.own_traces)
        except InvalidInputError:
            wrong.append(f"own_traces = {settings.own_traces!r}: it is the name of a table")
    if settings.kafka_registry is not None:
        if settings.kafka is None:
            wrong.append("kafka_registry goes with kafka")
        if not settings.kafka_registry.startswith(("http://", "https://")):
            wrong.append("kafka_registry: an address begins with http:// or https://")
    elif settings.kafka_registry_options is not None:
        wrong.append("kafka_registry_options goes with kafka_registry")
    wrong += [
        f"{name}: write name=value, …"
        for name in ("kafka_options", "kafka_registry_options")
        if any("=" not in part for part in (getattr(settings, name) or "").split(",") if part.strip())
    ]
    if settings.tokens == "off" and not settings.is_loopback and not settings.open:
        wrong.append(
            f"without tokens, {settings.host} would let anybody write: say open = true too, or tokens = 'auto'"
        )
    return wrong


def _tls_mistake(certificate: str, key: str) -> str:
    """Return why two files cannot be served with; nothing if they can."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: b"")
    except (OSError, ValueError) as error:
        return error.__class__.__name__
    return ""

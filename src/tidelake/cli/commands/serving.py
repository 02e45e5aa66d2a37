"""Commands of the server: serve, and the tokens that it asks for. Server libraries are imported when one of them runs.

It does not hold logic of its own: see ``server``.
"""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from tidelake.catalog.protocol import now_us
from tidelake.cli.commands.options import json_option, lake_options

if TYPE_CHECKING:
    from tidelake.lake import Lake
    from tidelake.server.access import Grant


@click.command()
@click.option("--lake", metavar="WHERE", help="As for every command; also in the file, or TIDELAKE_SERVE_LAKE.")
@click.option("--objects", metavar="URL", help="Where objects are, if not beside the catalog: s3://bucket/prefix.")
@click.option("--endpoint", metavar="URL", help="Of an S3-compatible store.")
@click.option("--host", metavar="ADDRESS", help="Where to listen; 127.0.0.1 by default.")
@click.option("--port", type=int, metavar="N", help="For HTTP; 8080 by default, 0 for any that is free.")
@click.option("--otlp-port", type=int, metavar="N", help="For OTLP over gRPC; 4317 by default, 0 for none.")
@click.option("--flight-port", type=int, metavar="N", help="For Arrow Flight SQL; 8815 by default, 0 for none.")
@click.option("--syslog-port", type=int, metavar="N", help="For syslog, TCP and UDP; none by default.")
@click.option("--processes", type=int, metavar="N", help="That serve HTTP and OTLP at these ports; 1 by default.")
@click.option("--kafka", metavar="HOST:PORT,…", help="Brokers to take messages from.")
@click.option("--kafka-topics", metavar="TOPIC=TABLE,…", help="Which topics, and the table of each.")
@click.option("--kafka-group", metavar="NAME", help="The consumer group; tidelake by default.")
@click.option("--kafka-registry", metavar="URL", help="Where the schemas are of Avro and Protobuf messages.")
@click.option("--tokens", type=click.Choice(["auto", "required", "off"]), help="Whether clients need a token.")
@click.option("--open", is_flag=True, default=None, help="With --tokens off: let anybody in who can reach the address.")
@click.option("--tls-certificate", metavar="FILE", help="A certificate, with its chain, for TLS.")
@click.option("--tls-key", metavar="FILE", help="Its key.")
@click.option("--config", metavar="FILE", help="Settings in TOML; the command line and the environment come first.")
@click.pass_context
def serve(context: click.Context, /, config: str | None, **given: Any) -> None:
    """Take rows over the network until stopped.

    Agents and programs send what they have in the protocol they speak; a request is answered when its rows are
    durable. Every setting can stand in the file, or in the environment as TIDELAKE_SERVE_NAME.

    \b
    Examples:
      tidelake serve
      tidelake serve --host 0.0.0.0 --tls-certificate server.pem --tls-key server.key
      tidelake serve --lake postgresql://user@host/db --objects s3://bucket/prefix --config serve.toml
    """
    from tidelake.server.process import serve as run
    from tidelake.server.settings import ENVIRONMENT, Mistakes, read_settings

    if given["lake"] is None and f"{ENVIRONMENT}LAKE" not in os.environ and context.obj not in (None, "lake"):
        given["lake"] = context.obj
    try:
        settings = read_settings(config, os.environ, given)
    except Mistakes as mistakes:
        for line in mistakes.lines:
            click.echo(f"tidelake: {line}", err=True)
        sys.exit(1)
    run(settings, ready=lambda where: click.echo(f"tidelake: serving {settings.lake} at {where}", err=True))


@click.command()
@click.option("--lake", "where", metavar="WHERE", help="Which lake; see tidelake --help.")
@click.option("--objects", envvar="TIDELAKE_OBJECTS", metavar="WHERE", help="The object store beside a catalog.")
@click.option("--endpoint", envvar="TIDELAKE_ENDPOINT", metavar="URL", help="Where the S3 server is, if not AWS.")
@click.option("--port", type=int, default=0, metavar="N", help="Where to listen; any that is free by default.")
@click.option("--open/--no-open", "opens", default=True, help="Whether to open a browser.")
@click.pass_context
def ui(
    context: click.Context, /, where: str | None, objects: str | None, endpoint: str | None, port: int, opens: bool
) -> None:
    """Look at a lake in a browser.

    A server for this machine alone is started, and its page opened: ask, look, drill, and see what is missing. Ctrl-C
    ends it. A lake that has tokens asks for one here too.

    \b
    Examples:
      tidelake ui --lake demo-lake/lake
      tidelake ui --no-open --port 8080
    """
    from tidelake.lake import connect
    from tidelake.server.process import serve as run
    from tidelake.server.settings import OFF, ServeSettings

    lake = where or context.obj or "lake"
    connect(
        lake, objects=objects, endpoint=endpoint, create=False, upkeep=False
    ).close()  # or say now that it is not there
    settings = ServeSettings(
        lake=lake, objects=objects, endpoint=endpoint, port=port, otlp_port=OFF, flight_port=OFF, log_level="warning",
        drain_s=1.0,
    )  # fmt: skip

    def ready(address: str) -> None:
        click.echo(f"tidelake: the page of {lake} is at {address} (Ctrl-C ends it)", err=True)
        if opens:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    run(settings, ready=ready)


@click.group()
def tokens() -> None:
    """Make, list and revoke the tokens that a server asks for.

    A lake without tokens is served to this machine only; from the first token on, every client needs one.

    \b
    Examples:
      tidelake tokens create collector --role write --namespace obs
      tidelake tokens list
    """


@tokens.command()
@click.argument("name")
@click.option("--role", "roles", multiple=True, type=click.Choice(["read", "write", "admin"]), required=True,
              help="What it allows; may be repeated.")  # fmt: skip
@click.option("--namespace", "namespaces", multiple=True, metavar="NAME", help="Only tables there; may be repeated.")
@click.option("--table", "tables", multiple=True, metavar="TABLE", help="Only this table; may be repeated.")
@click.option("--user", "users", multiple=True, metavar="ID", help="Only for this user; may be repeated.")
@click.option("--expires-in", metavar="TIME", help="After which it is over: 90d.")
@click.option("--rate-bytes", type=int, default=0, metavar="N", help="Bytes a second; no limit by default.")
@click.option("--rate-requests", type=int, default=0, metavar="N", help="Requests a second; no limit by default.")
@click.option("--quota-bytes", type=int, default=0, metavar="N", help="Bytes a day (UTC); no limit by default.")
@json_option
@lake_options(create=True)
def create(lake: Lake, name: str, as_json: bool, **options: Any) -> None:
    """Make a token, and print it: it is kept nowhere.

    \b
    Examples:
      tidelake tokens create collector --role write --namespace obs
      tidelake tokens create scraper --role admin --expires-in 90d
    """
    from tidelake.server.access import create_token

    token, grant = create_token(lake.store, name, **options)
    if as_json:
        _echo_json({**_told(grant), "token": token})
    else:
        click.echo(token)


@tokens.command("list")
@json_option
@lake_options()
def list_(lake: Lake, as_json: bool) -> None:
    """List the tokens, and what they allow; never the tokens themselves.

    \b
    Example:
      tidelake tokens list
    """
    from tidelake.server.access import list_tokens
    from tidelake.server.allowance import used_bytes

    grants, now = list_tokens(lake.store), now_us()
    found = [
        {**_told(grant), "used_bytes": used_bytes(lake.store, grant.id, now) if grant.quota_bytes else None}
        for grant in grants
    ]
    if as_json:
        _echo_json(found)
        return
    for each in found:
        scope = ", ".join([*each["namespaces"], *each["tables"]]) or "everything"
        users = f" for {', '.join(each['users'])}" if each["users"] else ""
        until = f" until {each['expires']}" if each["expires"] else ""
        used = f", used {each['used_bytes']} of {each['quota_bytes']} bytes today" if each["quota_bytes"] else ""
        click.echo(f"{each['id']}  {each['name']}: {', '.join(each['roles'])} of {scope}{users}{until}{used}")


@tokens.command()
@click.argument("token", metavar="ID_OR_NAME")
@lake_options()
def revoke(lake: Lake, token: str) -> None:
    """Take a token away, by its id or its name; servers know within seconds.

    \b
    Example:
      tidelake tokens revoke collector
    """
    from tidelake.server.access import revoke_token
    from tidelake.server.allowance import forget_used

    revoked = revoke_token(lake.store, token)
    forget_used(lake.store, [grant.id for grant in revoked])
    for grant in revoked:
        click.echo(f"revoked {grant.id} {grant.name}")


def _told(grant: Grant) -> dict[str, Any]:
    def time(us: int | None) -> str | None:
        return None if us is None else datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="seconds")

    scope = {"namespaces": list(grant.namespaces), "tables": list(grant.tables), "users": list(grant.users)}
    rates = {name: getattr(grant, name) for name in ("rate_bytes", "rate_requests", "quota_bytes")}
    times = {"created": time(grant.created_us), "expires": time(grant.expires_us)}
    return {"id": grant.id, "name": grant.name, "roles": list(grant.roles), **scope, **rates, **times}


def _echo_json(value: Any) -> None:
    import orjson

    click.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2))

"""The commands that run on Spark: load, stream, copy, rewrite. pyspark is imported when one of them runs.

It does not hold logic of its own: see ``spark``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from tidelake.cli.commands.options import json_option, lake_options
from tidelake.errors import InvalidInputError
from tidelake.write.messages import parse_topics

if TYPE_CHECKING:
    from tidelake.lake import Lake


def spark_options(create: bool = False, *, users: bool = False) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options that say which lake and which Spark, and pass it that lake, open."""
    where = click.option(
        "--master", metavar="URL", help="Where Spark runs: spark://…, yarn, k8s://…; local[*] by default."
    )
    return lambda command: where(json_option(lake_options(create, users=users)(command)))


@click.command()
@click.argument("table")
@click.argument("files", nargs=-1, required=True, metavar="FILES…")
@click.option("--format", type=click.Choice(["ndjson", "json", "csv", "parquet"]), help="If names do not tell.")
@click.option("--schema", metavar="COLUMNS", help="Of a new table: 'ts timestamp, service string'.")
@click.option("--time", metavar="COLUMN", help="The time column of a new table.")
@click.option("--key", metavar="TEXT", help="A second load under the same key changes nothing.")
@click.option("--quarantine", metavar="TABLE", help="Where bad records go; by default the table's name + _quarantine.")
@click.option("--only-missing", is_flag=True, help="Leave out rows of time windows that the table holds.")
@spark_options(create=True, users=True)
def load(lake: Lake, as_json: bool, table: str, files: tuple[str, ...], schema: str | None, **options: Any) -> None:
    """Load files into a table, with Spark.

    NDJSON, JSON, CSV or Parquet, named by path, folder or glob.

    The table is made if it is not there. Records that no table can hold go to a table of their own, with file, line
    and reason.

    \b
    Example:
      tidelake load obs.logs 'logs/*.ndjson' --lake lake
      tidelake load obs.logs 's3://raw/logs/*.ndjson.gz' --lake postgresql://… --objects s3://lake
      tidelake load m.cpu 'backfill/*.parquet' --only-missing
      tidelake load app.notes 'alice/*.ndjson' --user alice
    """
    from tidelake.spark.jobs import load as run

    say(run(lake, table, files, schema=parse_columns(schema) if schema else None, **options), as_json)


@click.command()
@click.argument("folder", required=False)
@click.option("--kafka", metavar="BROKERS", help="Take messages from Kafka instead, each once.")
@click.option("--topics", metavar="TOPIC=TABLE,…", help="Which topics go to which tables.")
@click.option("--group", default="tidelake", show_default=True, help="Part of the name of how far a table is.")
@click.option("--kafka-option", "kafka_options", multiple=True, metavar="NAME=VALUE", help="For Kafka's own client.")
@click.option("--registry", metavar="URL", help="Where the schemas are of Avro and Protobuf messages.")
@click.option("--registry-option", "registry_options", multiple=True, metavar="NAME=VALUE", help="For its client.")
@click.option("--once", is_flag=True, help="Load what is there and stop.")
@click.option("--every", "every_s", default=1.0, show_default=True, metavar="SECONDS", help="How often to look.")
@click.option("--done", type=click.Choice(["move", "delete", "keep"]), default="move", show_default=True,
              help="What becomes of a loaded file; move is to FOLDER/_done.")  # fmt: skip
@spark_options(create=True, users=True)
def stream(lake: Lake, as_json: bool, folder: str | None, **options: Any) -> None:
    """Load files as they are dropped, or messages of Kafka.

    Files go into FOLDER/NAMESPACE/TABLE/. A file that comes again, whatever its name, changes nothing.

    Messages are JSON objects, or name their schema in a registry. How far a partition is goes into the commit of its
    rows, so that each is in once.

    \b
    Example:
      tidelake stream inbox --lake lake --once
      tidelake stream --kafka broker:9092 --topics orders=shop.orders
    """
    asked = {name: options.pop(name) for name in _KAFKA}
    if asked["kafka"] is None:
        if folder is None or asked["topics"]:
            raise click.UsageError("name a folder, or --kafka and --topics")
        from tidelake.spark.drops import watch

        for report in watch(lake, folder, **options):
            say(report, as_json)
        return
    if folder is not None or not asked["topics"]:
        raise click.UsageError("--kafka needs --topics, and no folder")
    _stream_kafka(lake, asked, options)


_KAFKA = ("kafka", "topics", "group", "kafka_options", "registry", "registry_options")


def _stream_kafka(lake: Lake, asked: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    from tidelake.spark.kafka import stream_kafka

    told, of_registry = (
        dict(each.partition("=")[::2] for each in asked[name]) for name in ("kafka_options", "registry_options")
    )
    query = stream_kafka(
        lake,
        asked["kafka"],
        parse_topics(asked["topics"]),
        group=asked["group"],
        options=told,
        every=None if options["once"] else f"{options['every_s']:g} seconds",
        master=options.get("master"),
        registry={**of_registry, "url": asked["registry"]} if asked["registry"] else None,
    )
    query.awaitTermination()


@click.command()
@click.argument("source")
@click.argument("target")
@click.option("--query", metavar="SQL", default="select * from source", show_default=True,
              help="What to append, from the table called source.")  # fmt: skip
@click.option("--key", metavar="TEXT", help="A second copy under the same key changes nothing.")
@spark_options()
def copy(lake: Lake, as_json: bool, source: str, target: str, **options: Any) -> None:
    """Append what a query makes of a table to another.

    \b
    Example:
      tidelake copy obs.logs obs.errors --query "select * from source where level = 'ERROR'"
    """
    from tidelake.spark.jobs import copy as run

    say(run(lake, source, target, **options), as_json)


@click.command()
@click.argument("table")
@click.option("--format", metavar="NAME", help="The format of the new extents.")
@click.option("--block-rows", type=int, metavar="N", help="Rows of a block.")
@click.option("--extent-bytes", type=int, metavar="N", help="Bytes in memory of the rows of an extent.")
@spark_options()
def rewrite(lake: Lake, as_json: bool, table: str, **options: Any) -> None:
    """Write a table's extents anew.

    In another format, or with other blocks; rows stay as they are.

    \b
    Example:
      tidelake rewrite obs.logs --format parquet
    """
    from tidelake.spark.jobs import rewrite as run

    say(run(lake, table, **{name: value for name, value in options.items() if value is not None}), as_json)


def parse_columns(text: str) -> dict[str, str]:
    """Read columns as ``ts timestamp, service string``."""
    columns = {}
    for part in text.split(","):
        name, _, kind = part.strip().partition(" ")
        if not name or not kind.strip():
            raise InvalidInputError(f"{part.strip()!r} is not a column: write name and type, ts timestamp")
        columns[name] = kind.strip()
    return columns


def say(report: Any, as_json: bool) -> None:
    """Print a report, as one line for people or one of JSON for machines."""
    facts = asdict(report)
    if as_json:
        import orjson

        click.echo(orjson.dumps(facts))
    else:
        click.echo(" ".join(f"{name}={value}" for name, value in facts.items()))

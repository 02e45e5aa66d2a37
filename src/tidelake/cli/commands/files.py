"""Commands about single files.

It does not need a lake.
"""

from __future__ import annotations

from typing import Any

import click

from tidelake.cli.commands.options import console, json_option, open_object
from tidelake.errors import CorruptExtent


@click.command()
@click.argument("file")
@json_option
@click.option("--endpoint", metavar="URL", help="Where the S3 server is, if it is not AWS.")
def inspect(file: str, as_json: bool, endpoint: str | None) -> None:
    """Show what one extent holds, and verify every checksum.

    FILE is a path, or the address of an object such as s3://bucket/logs/a.tlm. The exit code is 1 when bytes are not
    the ones that were written. docs/inspect.md has the shape of the JSON.

    \b
    Examples:
      tidelake inspect lake/data/default/logs/0a1b.tlm
      tidelake inspect lake/data/default/logs/0a1b.tlm --json | jq .checksums
    """
    import orjson

    from tidelake.cli.inspect import anatomy, inspect_extent

    report = inspect_extent(*open_object(file, endpoint=endpoint))
    if as_json:
        click.echo(orjson.dumps(report.to_json(), option=orjson.OPT_INDENT_2))
    else:
        console().print(anatomy(report))
    if report.mismatches:
        _block, _column, _part = report.mismatches[0]
        place = zip(("block", "column", "part"), report.mismatches[0], strict=True)
        where: dict[str, Any] = {name: value for name, value in place if value is not None}
        raise CorruptExtent("checksum mismatch", object=report.key, **where, mismatches=len(report.mismatches))

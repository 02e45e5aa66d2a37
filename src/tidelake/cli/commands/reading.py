"""Share the options that say how files are read: of ingest, and of query where it asks files.

It does not read anything: see ``ingest``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

READ_OPTIONS = ("time", "time_format", "missing_time", "lines", "delimiter", "constants", "skip_bad")


def read_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say where times are in files, and what separates rows and columns."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def are_given() -> bool:
    """Whether the command that runs was given one of these options."""
    context = click.get_current_context()
    unsaid = (click.core.ParameterSource.DEFAULT, click.core.ParameterSource.DEFAULT_MAP)
    return any(context.get_parameter_source(name) not in unsaid for name in READ_OPTIONS)


def _constants(context: click.Context, parameter: click.Parameter, pairs: tuple[str, ...]) -> dict[str, str]:
    made = dict(pair.partition("=")[::2] for pair in pairs)
    if bad := next((pair for pair in pairs if "=" not in pair or pair.startswith("=")), None):
        raise click.BadParameter(f"{bad!r} is not name=value", context, parameter)
    return made


_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--time", metavar="COLUMN", help="Where the time is, if it is not found: a column, DATE+TIME, or a.path."
    ),
    click.option("--time-format", metavar="FORMAT", help="How times are written, such as '%d/%m/%Y %H:%M'."),
    click.option(
        "--missing-time",
        type=click.Choice(["fail", "skip", "now"]),
        default="fail",
        show_default=True,
        help="What becomes of rows without a time; ingest keeps skipped ones in the quarantine file.",
    ),
    click.option("--lines", is_flag=True, help="Read text line by line, whatever it looks like."),
    click.option("--delimiter", metavar="CHARACTER", help="What separates the columns of CSV, if it is not found."),
    click.option(
        "--set",
        "constants",
        multiple=True,
        callback=_constants,
        metavar="NAME=VALUE",
        help="A column with this value in every row; may be given several times.",
    ),
    click.option("--skip-bad", is_flag=True, help="Leave out lines that cannot be read; ingest keeps them for later."),
)

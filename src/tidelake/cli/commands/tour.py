"""Commands that show a person around.

It does not hold what they run: see ``demo`` and ``shell``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tidelake.cli.commands.options import console, lake_options

if TYPE_CHECKING:
    from tidelake.lake import Lake


@click.command()
@click.argument("folder", default="demo-lake")
def demo(folder: str) -> None:
    """Find an incident in a shop's telemetry.

    Files are loaded and streamed, questions asked, and what was read for them and what is missing is shown. It takes
    about a minute and runs on Spark, which needs Java 17. The lake is left in FOLDER/lake to play with.

    \b
    Example:
      tidelake demo
    """
    from tidelake.cli.demo import run_demo

    run_demo(folder, console())


@click.command()
@click.option("--engine", default="auto", show_default=True, type=click.Choice(["auto", "local", "spark"]))
@lake_options(users=True)
def shell(lake: Lake, engine: str) -> None:
    """Ask one question after another.

    With history, completion of tables and columns, and charts for KQL's render. Questions may also come through a
    pipe, each up to a semicolon or a blank line; the exit code is then 1 if one of them could not be answered.

    \b
    Example:
      tidelake shell --lake lake
    """
    from tidelake.cli.shell import run_shell

    if not run_shell(lake, console(), engine=engine):
        click.get_current_context().exit(1)

"""Commands that show a person around.

It does not hold the demo: see ``demo``.
"""

from __future__ import annotations

import click

from tidelake.commands.options import console


@click.command()
@click.argument("folder", default="demo-lake")
def demo(folder: str) -> None:
    """Write a day of logs as one extent and search it.

    The extent is left in FOLDER for a closer look.

    \b
    Example:
      tidelake demo
    """
    from tidelake.demo import run_demo

    run_demo(folder, console())

"""Have all loops compiled before anything is measured: a server would have it done beside its first requests."""

from __future__ import annotations

import subprocess
import sys

from tidelake.runtime.readiness import PARTS


def compile_loops() -> None:
    """Have all loops on the disk, as they are wherever a server ran before."""
    subprocess.run([sys.executable, "-m", "tidelake.server.wire.warming"], check=True)
    for part in PARTS:
        subprocess.run([sys.executable, "-m", "tidelake.cli.warm_up", part], check=True)

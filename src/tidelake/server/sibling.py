"""Run one more process of a server, which the first one starts: ``python -m tidelake.server.sibling``.

What it is to do comes as a line of JSON; the end of what it reads says that it is to stop. It does not decide
anything: see ``siblings``.
"""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

from tidelake.errors import TidelakeError
from tidelake.server.process import serve_beside
from tidelake.server.settings import ServeSettings
from tidelake.server.siblings import Siblings


def main() -> int:
    """Serve until the first process is gone."""
    told = json.loads(sys.stdin.buffer.readline() or b"{}")
    if not told:
        return 0
    siblings = Siblings(Path(told["folder"]), told["number"], told["count"])
    try:
        with socket.socket(fileno=told["listener"]) as listener:
            serve_beside(ServeSettings(**told["settings"]), listener, siblings)
    except TidelakeError as error:
        print(f"tidelake: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

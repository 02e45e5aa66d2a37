"""Answer for a catalog in a process of its own: ``python -m tidelake.spark.catalog.companion``.

The JVM of a server or a shell has no Python program that could be asked, so it starts this one: a line with a verb and
JSON comes in, a line of JSON goes out, until the JVM closes the pipe. It does not write anything else there.
"""

from __future__ import annotations

import os
import sys

from tidelake.spark.catalog.door import answer


def main() -> None:
    """Answer until the questions end."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)  # what libraries print is no answer
        for line in sys.stdin:
            verb, _, question = line.partition(" ")
            print(answer(verb, question), file=answers, flush=True)


if __name__ == "__main__":
    main()

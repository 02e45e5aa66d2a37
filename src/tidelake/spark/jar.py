"""Write the classes of the catalog as a jar, for a JVM that no Python program starts: ``python -m tidelake.spark.jar``.

A server or a shell is given it by ``--jars``. It is compiled here, by the Spark that is installed here, and belongs to
that version. It does not need a compiler or a session.
"""

from __future__ import annotations

import shutil
import sys

from tidelake.errors import InvalidInputError


def write_jar(path: str) -> str:
    """Write the jar, and return its path."""
    from pyspark.java_gateway import launch_gateway

    from tidelake.spark.jvm.catalogs import SERVER_FILES
    from tidelake.spark.jvm.compile import compile_jar

    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    try:
        loader = gateway.jvm.Thread.currentThread().getContextClassLoader()
        shutil.copy(compile_jar(gateway.jvm, loader, SERVER_FILES), path)
    finally:
        gateway.shutdown()
    return path


def main(arguments: list[str]) -> None:
    """Write the jar to the path that is named."""
    if len(arguments) != 1:
        raise InvalidInputError("name the jar to write: python -m tidelake.spark.jar tidelake.jar")
    print(write_jar(arguments[0]))


if __name__ == "__main__":
    main(sys.argv[1:])

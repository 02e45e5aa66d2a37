"""Compile our few Java classes inside the driver, with the compiler that Spark brings for its own generated code.

So there is nothing to install, and no jar to match with a Spark. What executors need of them is packed as a jar and
sent to them by Spark. Each file is compiled, and so linked with this Spark, on its own when it is first asked for:
another Spark may have changed what one of them is built on, and the others work all the same. Whoever asks for a class
must be ready for any error. It does not know what the classes do.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import zipfile
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ON_EXECUTORS = frozenset({"Cancellable", "ColumnReader", "Gathered"})
_LOADERS, _JARS, _FAILED, _SENT = "_tidelake_loaders", "_tidelake_jars", "_tidelake_failed", "_tidelake_jars_sent"


def java_class(spark: SparkSession, name: str) -> Any:
    """Return one of our classes, compiled once in a JVM; executors of this session get those that they need."""
    context = spark.sparkContext
    held: dict[str, Any] = context._gateway.__dict__  # it lives as long as the JVM, longer than a context
    file = name.removeprefix("tidelake.").partition("$")[0]
    loader = _loader(spark, held, file)
    jar, sent = held.setdefault(_JARS, {}).get(file), context.__dict__.setdefault(_SENT, set())
    if jar is not None and file not in sent:
        context._jsc.addJar(jar)
        sent.add(file)
    return loader.loadClass(name)


def _loader(spark: SparkSession, held: dict[str, Any], file: str) -> Any:
    """Return the class loader that has a file's classes; the same error again for a file that failed before."""
    loaders, failed = held.setdefault(_LOADERS, {}), held.setdefault(_FAILED, {})
    if file in failed:
        raise RuntimeError(failed[file])
    if file not in loaders:
        try:
            loaders[file] = _compiled(spark, file, held)
        except Exception as error:
            failed[file] = f"Spark {spark.version} is not as expected: {' '.join(str(error).splitlines()[:2])}"
            raise RuntimeError(failed[file]) from error
    return loaders[file]


def _compiled(spark: SparkSession, file: str, held: dict[str, Any]) -> Any:
    """Compile one file, and pack it for executors if they need it."""
    jvm: Any = spark.sparkContext._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(spark._jsparkSession.getClass().getClassLoader())
    compiler.cook(files("tidelake.spark.jvm").joinpath(f"{file}.java").read_text())
    if file in ON_EXECUTORS:
        code = {str(name): bytes(code) for name, code in compiler.getBytecodes().items()}
        held.setdefault(_JARS, {})[file] = _packed(code, file)
    return compiler.getClassLoader()


def _packed(classes: dict[str, bytes], file: str) -> str:
    """Write classes as a jar that lasts as long as this process."""
    folder = tempfile.mkdtemp(prefix="tidelake-jar-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = os.path.join(folder, f"tidelake-{file}.jar")
    with zipfile.ZipFile(path, "w") as jar:
        for name, code in sorted(classes.items()):
            jar.writestr(f"{name.replace('.', '/')}.class", code)
    return path

"""Compile our few Java classes inside the driver, with the compiler that Spark brings for its own generated code.

So there is nothing to install, and no jar to match with a Spark. What executors need of them is packed as a jar and
sent to them by Spark. Whoever asks for a class must be ready for any error: another Spark may have changed what ours
are built on. It does not know what the classes do.
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

ON_EXECUTORS = "ColumnReader.java"
FILES = (ON_EXECUTORS, "DriverSource.java", "ScanRule.java")
_LOADER, _JAR, _FAILED, _SENT = "_tidelake_classes", "_tidelake_jar", "_tidelake_failed", "_tidelake_jar_is_sent"


def java_class(spark: SparkSession, name: str) -> Any:
    """Give one of our classes, compiled once in a JVM; executors of this session get those that they need."""
    context = spark.sparkContext
    held: dict[str, Any] = context._gateway.__dict__  # it lives as long as the JVM, longer than a context
    if _FAILED in held:
        raise RuntimeError(held[_FAILED])  # it would fail again
    if _LOADER not in held:
        try:
            held[_LOADER], held[_JAR] = _compiled(context._jvm, spark._jsparkSession.getClass().getClassLoader())
        except Exception as error:
            held[_FAILED] = f"Spark {spark.version} is not as expected: {' '.join(str(error).splitlines()[:2])}"
            raise RuntimeError(held[_FAILED]) from error
    if _SENT not in context.__dict__:
        context._jsc.addJar(held[_JAR])
        context.__dict__[_SENT] = True
    return held[_LOADER].loadClass(name)


def _compiled(jvm: Any, loader: Any) -> tuple[Any, str]:
    """Compile all files, each of which may use those before it; give their loader and the jar for executors."""
    jar = ""
    for file in FILES:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(loader)
        compiler.cook(files("tidelake.spark").joinpath(file).read_text())
        if file == ON_EXECUTORS:
            jar = _packed({str(name): bytes(code) for name, code in compiler.getBytecodes().items()})
        loader = compiler.getClassLoader()
    return loader, jar


def _packed(classes: dict[str, bytes]) -> str:
    """Write classes as a jar that lasts as long as this process."""
    folder = tempfile.mkdtemp(prefix="tidelake-jar-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = os.path.join(folder, "tidelake.jar")
    with zipfile.ZipFile(path, "w") as jar:
        for name, code in sorted(classes.items()):
            jar.writestr(f"{name.replace('.', '/')}.class", code)
    return path

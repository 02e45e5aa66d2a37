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
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Of a jar of several files: what it goes without, where it does not compile.
OPTIONAL = frozenset({"LakePushdown", "LakePaths", "LimitRule", "PathRule", "LakeEvolving"})
ON_EXECUTORS = frozenset({"Cancellable", "ColumnReader", "Gathered", "StoredColumns", "StoredPages"})
# Of a file: those that it builds on, which are compiled before it and packed with it.
BEFORE = {
    "StoredColumns": ("Sums",),
    "Pco": ("PcoBits",),
    "StoredPages": ("Sums", "StoredColumns", "PcoBits", "Pco", "Pages", "Templates"),
}
_JAVA = 8  # whose interfaces have methods with bodies, which Spark's have
_GROWING = "MutableURLClassLoader"  # how the names of Spark's class loaders end that take further jars
_LOADERS, _JARS, _FAILED, _SENT = "_tidelake_loaders", "_tidelake_jars", "_tidelake_failed", "_tidelake_jars_sent"


def java_class(spark: SparkSession, name: str) -> Any:
    """Return one of our classes, compiled once in a JVM; executors of this session get those that they need."""
    context = spark.sparkContext
    held: dict[str, Any] = context._gateway.__dict__  # it lives as long as the JVM, longer than a context
    file = name.removeprefix("tidelake.").partition("$")[0]
    loader = _loader(spark, held, file)
    if file in held.get(_JARS, {}):
        send_jar(spark, file)
    return loader.loadClass(name)


def send_jar(spark: SparkSession, name: str) -> None:
    """Have the executors of a session get the jar of a file or class that was compiled, once."""
    context = spark.sparkContext
    sent = context.__dict__.setdefault(_SENT, set())
    if name not in sent:
        context._jsc.addJar(context._gateway.__dict__[_JARS][name])
        sent.add(name)


def jar_class(spark: SparkSession, name: str, names: Sequence[str]) -> Any:
    """Return a class of some files, each of which sees those before it, where every thread of the driver finds it.

    Spark looks for some classes by their names, in the class loader of whichever thread asks.
    """
    held: dict[str, Any] = spark.sparkContext._gateway.__dict__
    loaders, failed = held.setdefault(_LOADERS, {}), held.setdefault(_FAILED, {})
    for file in names:
        if file in failed and file not in OPTIONAL:
            raise RuntimeError(failed[file])
    if name not in loaders:
        try:
            loaders[name] = _shared(spark, held, name, names)
        except Exception as error:
            failed[names[-1]] = _unexpected(spark, error)
            raise RuntimeError(failed[names[-1]]) from error
    return loaders[name].loadClass(name)


def optional_class(spark: SparkSession, name: str, of: str) -> Any:
    """Return a class that the jar of another has where this Spark can have it."""
    held: dict[str, Any] = spark.sparkContext._gateway.__dict__
    file = name.removeprefix("tidelake.").partition("$")[0]
    if file in held.setdefault(_FAILED, {}):
        raise RuntimeError(held[_FAILED][file])
    return held[_LOADERS][of].loadClass(name)


def compile_jar(jvm: Any, loader: Any, names: Sequence[str], failed: dict[str, str] | None = None) -> str:
    """Compile files, each of which sees those before it, and pack them as a jar; return its path.

    Of those that are optional it takes what compiles, and writes down what the others failed of.
    """
    code = jvm.java.util.HashMap()
    for file in names:
        compiler = _compiler(jvm, _of_code(jvm, code, loader))
        compiler.setSourceVersion(_JAVA)
        compiler.setTargetVersion(_JAVA)
        try:
            compiler.cook(_source(file))
        except Exception as error:
            if file not in OPTIONAL:
                raise
            if failed is not None:
                failed[file] = " ".join(str(error).splitlines()[:2])
            continue
        code.putAll(compiler.getBytecodes())
    return _packed({str(name): bytes(each) for name, each in code.items()}, names[-1])


def _of_code(jvm: Any, code: Any, parent: Any) -> Any:
    """Return one loader of all code so far: classes of a package see each other's parts only within one."""
    return jvm.org.codehaus.commons.compiler.util.reflect.ByteArrayClassLoader(code, parent)


def _shared(spark: SparkSession, held: dict[str, Any], name: str, names: Sequence[str]) -> Any:
    """Compile files, and put them where all of the driver's threads look; return that class loader."""
    jvm: Any = spark.sparkContext._jvm
    jar = held.setdefault(_JARS, {})[name] = compile_jar(jvm, _spark_loader(spark), names, held[_FAILED])
    outermost, each = None, jvm.java.lang.Thread.currentThread().getContextClassLoader()
    while each is not None:
        outermost = each if each.getClass().getSimpleName().endswith(_GROWING) else outermost
        each = each.getParent()
    if outermost is None:
        raise RuntimeError("no class loader takes a jar")
    outermost.addURL(jvm.java.net.URL(Path(jar).as_uri()))
    return outermost


def _loader(spark: SparkSession, held: dict[str, Any], file: str) -> Any:
    """Return the class loader that has a file's classes; the same error again for a file that failed before."""
    loaders, failed = held.setdefault(_LOADERS, {}), held.setdefault(_FAILED, {})
    if missed := [failed[each] for each in (*BEFORE.get(file, ()), file) if each in failed]:
        raise RuntimeError(missed[0])
    if file not in loaders:
        try:
            loaders[file] = _compiled(spark, file, held)
        except Exception as error:
            failed[file] = _unexpected(spark, error)
            raise RuntimeError(failed[file]) from error
    return loaders[file]


def _compiled(spark: SparkSession, file: str, held: dict[str, Any]) -> Any:
    """Compile one file with what it builds on, and pack it for executors if they need it."""
    jvm: Any = spark.sparkContext._jvm
    code, loader = jvm.java.util.HashMap(), _spark_loader(spark)
    for each in (*BEFORE.get(file, ()), file):
        compiler = _compiler(jvm, _of_code(jvm, code, loader))
        compiler.cook(_source(each))
        code.putAll(compiler.getBytecodes())
    if file in ON_EXECUTORS:
        held.setdefault(_JARS, {})[file] = _packed({str(name): bytes(data) for name, data in code.items()}, file)
    return _of_code(jvm, code, loader)


def _compiler(jvm: Any, parent: Any) -> Any:
    """Return a compiler of classes that see those of a class loader."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(parent)
    return compiler


def _spark_loader(spark: SparkSession) -> Any:
    return spark._jsparkSession.getClass().getClassLoader()


def _source(file: str) -> str:
    return files("tidelake.spark.jvm").joinpath(f"{file}.java").read_text()


def _unexpected(spark: SparkSession, error: Exception) -> str:
    return f"Spark {spark.version} is not as expected: {' '.join(str(error).splitlines()[:2])}"


def _packed(classes: dict[str, bytes], file: str) -> str:
    """Write classes as a jar that lasts as long as this process."""
    folder = tempfile.mkdtemp(prefix="tidelake-jar-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = os.path.join(folder, f"tidelake-{file}.jar")
    with zipfile.ZipFile(path, "w") as jar:
        for name, code in sorted(classes.items()):
            jar.writestr(f"{name.replace('.', '/')}.class", code)
    return path

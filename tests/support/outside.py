"""Install programs of others, as their users do: from Go's modules, Debian's packages and Maven's repository.

Each is put into ``build/outside`` once and found there later. Where a registry cannot be reached, or a tool to build
with is missing, the test that asks is skipped with one line that says so. It does not install anything elsewhere.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "build" / "outside"
WITHIN_S = 1800
COLLECTOR = "0.161.0"  # newer ones do not build
PROMETHEUS = "v0.314.0"  # as a module: 3.14
COMPLIANCE = "v0.0.0-20260806071727-67b8327a2e93"
KAFKA = "4.3.1"

_COLLECTOR_PARTS = f"""
dist:
  name: otelcol
  output_path: OUTPUT
  go: go
receivers:
- gomod: go.opentelemetry.io/collector/receiver/otlpreceiver v{COLLECTOR}
processors:
- gomod: go.opentelemetry.io/collector/processor/batchprocessor v{COLLECTOR}
exporters:
- gomod: go.opentelemetry.io/collector/exporter/otlpexporter v{COLLECTOR}
- gomod: go.opentelemetry.io/collector/exporter/otlphttpexporter v{COLLECTOR}
- gomod: github.com/open-telemetry/opentelemetry-collector-contrib/exporter/fileexporter v{COLLECTOR}
"""
_KAFKA_PROJECT = f"""<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>none</groupId><artifactId>broker</artifactId><version>1</version><dependencies>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{KAFKA}</version></dependency>
<dependency><groupId>org.apache.kafka</groupId><artifactId>kafka-tools</artifactId><version>{KAFKA}</version></dependency>
</dependencies></project>"""


@cache
def telemetrygen() -> Path:
    """Return OpenTelemetry's own generator of telemetry."""
    module = "github.com/open-telemetry/opentelemetry-collector-contrib/cmd/telemetrygen"
    return _once("telemetrygen", lambda place: _go_install(f"{module}@v{COLLECTOR}", place))


@cache
def collector() -> Path:
    """Return an OpenTelemetry Collector with OTLP on both sides, and files."""

    def build(place: Path) -> None:
        builder = place.parent / "builder"
        _go_install(f"go.opentelemetry.io/collector/cmd/builder@v{COLLECTOR}", builder)
        sources = place.parent / "otelcol-sources"
        config = place.parent / "otelcol.yaml"
        config.write_text(_COLLECTOR_PARTS.replace("OUTPUT", str(sources)))
        _run([str(builder), "--config", str(config), "--skip-strict-versioning"])
        (sources / "otelcol").rename(place)
        shutil.rmtree(sources)

    return _once("otelcol", build)


@cache
def prometheus_3() -> Path:
    """Return Prometheus 3, built from its module."""

    def build(place: Path) -> None:
        with_sources = _go_sources(
            f"github.com/prometheus/prometheus@{PROMETHEUS}", place.parent / "prometheus-sources"
        )
        words = ["go", "build", "-mod=mod", "-tags", "remove_all_sd", "-o", str(place), "./cmd/prometheus"]
        _run(words, cwd=with_sources)
        shutil.rmtree(with_sources)

    return _once("prometheus3", build)


@cache
def receiver_suite() -> Path:
    """Return the suite that Prometheus has for receivers of remote write, as a program of tests."""

    def build(place: Path) -> None:
        module = f"github.com/prometheus/compliance/remotewrite/receiver@{COMPLIANCE}"
        sources = _go_sources(module, place.parent / "receiver-sources")
        _run(["go", "test", "-mod=mod", "-c", "-o", str(place), "."], cwd=sources)
        shutil.rmtree(sources)

    return _once("receiver-suite", build)


@cache
def prometheus_2() -> Path:
    """Return Debian's Prometheus."""
    return debian("prometheus", "usr/bin/prometheus")


@cache
def promtool() -> Path:
    """Return Debian's promtool."""
    return debian("prometheus", "usr/bin/promtool")


@cache
def victoria_metrics() -> Path:
    """Return Debian's VictoriaMetrics."""
    return debian("victoria-metrics", "usr/bin/victoria-metrics")


@cache
def rsyslog() -> tuple[list[str], dict[str, str]]:
    """Return the command of Debian's rsyslog, and where its libraries are."""
    libraries = "usr/lib/x86_64-linux-gnu"
    found = [debian(package, libraries) for package in ("libestr0", "libfastjson4", "rsyslog")]
    words = [str(debian("rsyslog", "usr/sbin/rsyslogd")), "-n", "-M", str(found[-1] / "rsyslog")]
    return words, {"LD_LIBRARY_PATH": ":".join(map(str, found))}


@cache
def kafka_jars() -> Path:
    """Return a folder with the jars of a broker of Kafka."""

    def build(place: Path) -> None:
        project = place.parent / "kafka-pom.xml"
        project.write_text(_KAFKA_PROJECT)
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={place}"]
        _run(["mvn", "-q", "-B", "-f", str(project), *copy])

    return _once("kafka", build)


def debian(package: str, path: str) -> Path:
    """Return a file of one of Debian's packages, which is unpacked and not installed."""

    def build(place: Path) -> None:
        loaded = place.parent / f"{package}-loading"
        shutil.rmtree(loaded, ignore_errors=True)
        loaded.mkdir()
        _run(["apt-get", "download", "-q", package], cwd=loaded)
        (archive,) = loaded.glob("*.deb")
        _run(["dpkg", "-x", str(archive), str(place)])
        shutil.rmtree(loaded)

    return _once(f"debian-{package}", build) / path


def _once(name: str, build: Callable[[Path], None]) -> Path:
    """Build something unless it is there; one process at a time, and whole or not at all."""
    place = FOLDER / name
    if place.exists():
        return place
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            making = FOLDER / f"{name}.making"
            shutil.rmtree(making, ignore_errors=True)
            making.unlink(missing_ok=True)
            try:
                build(making)
            except (OSError, subprocess.SubprocessError) as error:
                pytest.skip(f"{name} cannot be installed here: {_reason(error)}")
            making.rename(place)
    return place


def _reason(error: Exception) -> str:
    said = getattr(error, "stderr", None)
    lines = said.strip().splitlines() if isinstance(said, str) else []
    return f"{error.__class__.__name__} {lines[-1][:200] if lines else str(error)[:200]}"


def _go_install(package: str, place: Path) -> None:
    folder = place.parent / f"{place.name}-bin"
    _run(["go", "install", package], GOBIN=str(folder))
    (made,) = folder.iterdir()
    made.rename(place)
    folder.rmdir()


def _go_sources(module: str, place: Path) -> Path:
    """Copy the sources of a module to where they can be built; what modules are kept in cannot be written to."""
    told = json.loads(_run(["go", "mod", "download", "-json", module]))
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(told["Dir"], place)
    for folder, _, files in os.walk(place):
        for path in (Path(folder), *(Path(folder) / name for name in files)):
            path.chmod(path.stat().st_mode | stat.S_IWUSR)
    return place


def _run(words: Sequence[str], cwd: Path | None = None, **environment: str) -> str:
    told = {**os.environ, "GOFLAGS": "-p=1", "GOWORK": "off", **environment}
    ran = subprocess.run(
        words, cwd=cwd or FOLDER, env=told, check=True, capture_output=True, text=True, timeout=WITHIN_S
    )
    return ran.stdout

"""Find a real browser for tests: Chromium of this machine, or one that is fetched once without root.

The second way takes a package of npm that has Chromium as a compressed file with the libraries it needs; it is kept in
the user's cache folder. Where neither can be had, tests that need a browser are skipped with one line that says so. It
does not start anything but what ``browser`` yields.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, sync_playwright

PACKAGE = "@sparticuz/chromium@147.0.0"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
FETCH_WITHIN_S = 240
_UNPACK = """
const zlib = require("zlib"), fs = require("fs");
for (const [from, to] of [["chromium.br", "chromium"], ["al2023.tar.br", "al2023.tar"], ["fonts.tar.br", "fonts.tar"]])
  fs.writeFileSync(to, zlib.brotliDecompressSync(fs.readFileSync("package/bin/" + from)));
"""
_FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{place}/fonts</dir><dir>/usr/share/fonts</dir><cachedir>{place}/font-cache</cachedir></fontconfig>
"""


@contextmanager
def browser() -> Iterator[Browser]:
    """Yield a browser; skip if there is none."""
    path, environment = _found()
    with sync_playwright() as playwright:
        try:
            opened = playwright.chromium.launch(
                executable_path=str(path), args=list(ARGUMENTS), env={**os.environ, **environment}
            )
        except Error as error:
            pytest.skip(f"no browser: {path} does not start: {str(error).splitlines()[0]}")
        try:
            yield opened
        finally:
            opened.close()


def _found() -> tuple[Path, dict[str, str]]:
    for name in NAMES:
        if path := shutil.which(name):
            return Path(path), {}
    place = _fetched()
    return place / "chromium", {
        "LD_LIBRARY_PATH": str(place / "lib"),
        "FONTCONFIG_FILE": str(place / "fontconfig.xml"),
    }


def _fetched() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidelake" / "browser"
    place = cache / PACKAGE.rpartition("@")[2]
    if place.exists():
        return place
    if not shutil.which("npm") or not shutil.which("node"):
        pytest.skip("no browser: install chromium, or node and npm to have one fetched")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as name:
        work = Path(name) / "unpacked"
        work.mkdir()
        try:
            _run(["npm", "pack", PACKAGE, "--loglevel=error"], work)
            _run(["tar", "xzf", next(work.glob("*.tgz")).name], work)
            _run(["node", "-e", _UNPACK], work)
            for packed in ("al2023.tar", "fonts.tar"):
                _run(["tar", "xf", packed], work)
                (work / packed).unlink()
        except (subprocess.SubprocessError, OSError, StopIteration) as error:
            pytest.skip(f"no browser: chromium is not installed and cannot be fetched ({type(error).__name__})")
        shutil.rmtree(work / "package")
        next(work.glob("*.tgz")).unlink()
        (work / "chromium").chmod(0o755)
        (work / "fontconfig.xml").write_text(_FONTS.format(place=place))
        if not place.exists():
            work.rename(place)
    return place


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, timeout=FETCH_WITHIN_S, capture_output=True)

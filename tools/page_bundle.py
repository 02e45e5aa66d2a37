"""Make the page's files of its sources: one script and one style sheet, with the libraries that they use.

    python -m tools.page_bundle           write src/tidelake/server/page/assets
    python -m tools.page_bundle --check   build elsewhere, and say whether that gives the same files

It needs node and npm, once, and where packages come from. Versions are exact in ``source/package.json``, for what they
pull in too; packages are kept in the user's cache folder. Beside the files goes ``bundle.json``, digests of what went
in and what came out, by which a test sees without node that nobody forgot to build. It does not change sources.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PAGE = Path(__file__).parents[1] / "src" / "tidelake" / "server" / "page"
SOURCE, ASSETS = PAGE / "source", PAGE / "assets"
PLAIN = ("index.html", "mark.svg")  # go as they are
NOTE = "bundle.json"
LICENSES = "LICENSES.txt"
MOST_BYTES = 200_000  # of all files, compressed
INSTALL_WITHIN_S = 300


def digest(data: bytes) -> str:
    """Return the digest of some bytes."""
    return hashlib.sha256(data).hexdigest()


def sources_digest(folder: Path = SOURCE) -> str:
    """Return one digest of all sources, by their names."""
    lines = [f"{digest(path.read_bytes())} {path.name}\n" for path in sorted(folder.iterdir()) if path.is_file()]
    return digest("".join(lines).encode())


def packages() -> Path:
    """Return the folder that has the packages, installed if they are not there."""
    told = (SOURCE / "package.json").read_bytes()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidelake" / "page"
    place = cache / digest(told)[:16]
    if (place / "node_modules").is_dir():
        return place
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as name:
        work = Path(name) / "packages"
        work.mkdir()
        (work / "package.json").write_bytes(told)
        options = ["--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run(["npm", "install", *options], cwd=work, check=True, timeout=INSTALL_WITHIN_S)
        if not place.exists():
            work.rename(place)
    return place


def build(into: Path) -> None:
    """Write all files into a folder."""
    at = packages()
    into.mkdir(parents=True, exist_ok=True)
    for path in into.iterdir():
        path.unlink()
    esbuild = at / "node_modules" / ".bin" / "esbuild"
    options = ["--bundle", "--minify", "--format=esm", "--target=es2022", "--legal-comments=none", "--charset=utf8"]
    subprocess.run(
        [esbuild, "main.js", *options, "--log-level=warning", f"--outfile={into / 'page.js'}"],
        cwd=SOURCE,
        env={**os.environ, "NODE_PATH": str(at / "node_modules")},
        check=True,
    )
    for name in PLAIN:
        shutil.copyfile(SOURCE / name, into / name)
    (into / LICENSES).write_text(licenses(at / "node_modules"))
    files = {path.name: digest(path.read_bytes()) for path in sorted(into.iterdir())}
    (into / NOTE).write_text(json.dumps({"sources": sources_digest(), "files": files}, indent=2) + "\n")


def licenses(modules: Path) -> str:
    """Return the licenses of the libraries that are in the bundle."""
    parts = []
    wanted = json.loads((SOURCE / "package.json").read_text())["dependencies"]
    for name in sorted(wanted):
        if name == "esbuild":
            continue  # builds, and is not in it
        told = json.loads((modules / name / "package.json").read_text())
        found = [path for path in sorted((modules / name).iterdir()) if path.name.upper().startswith("LICEN")]
        text = found[0].read_text().strip() if found else f"License: {told.get('license')}"
        parts.append(f"{name} {told['version']}\n\n{text}\n")
    return ("\n" + "-" * 80 + "\n\n").join(parts)


def packed_bytes(folder: Path = ASSETS) -> dict[str, int]:
    """Return how many bytes each file is that a browser loads, compressed."""
    names = ("page.js", "page.css", *PLAIN)
    return {name: len(gzip.compress((folder / name).read_bytes(), 9, mtime=0)) for name in names}


def main() -> int:
    """Build, or check."""
    parser = argparse.ArgumentParser(description="make the page's files of its sources")
    parser.add_argument("--check", action="store_true", help="say whether the files are what the sources give")
    if not parser.parse_args().check:
        build(ASSETS)
        sizes = packed_bytes()
        print(", ".join(f"{name} {size:,}" for name, size in sizes.items()), f"= {sum(sizes.values()):,} bytes packed")
        return int(sum(sizes.values()) > MOST_BYTES)
    with tempfile.TemporaryDirectory() as name:
        build(Path(name))
        differ = [path.name for path in sorted(Path(name).iterdir()) if not _is_same(path)]
    print("differ: " + ", ".join(differ) if differ else "the files are what the sources give")
    return int(bool(differ))


def _is_same(path: Path) -> bool:
    held = ASSETS / path.name
    return held.exists() and held.read_bytes() == path.read_bytes()


if __name__ == "__main__":
    sys.exit(main())

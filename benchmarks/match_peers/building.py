"""Programs of Go: built from our sources and modules of its registry, once, and kept by what they were built from."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent
BUILT_WITHIN_S = 600


class NotBuilt(Exception):
    """Why, in a line."""


def build(program: str) -> Path:
    """The program of this folder of sources. NotBuilt where there is no Go, or a module cannot be had."""
    kept = Path(sys.prefix, "peers", "minimatch", f"{program}-{_digest(SOURCES / program)}")
    if not kept.is_file():
        _build(SOURCES / program, kept)
    return kept


def _build(sources: Path, kept: Path) -> None:
    if shutil.which("go") is None:
        raise NotBuilt("there is no go on the PATH")
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"kizuna-{sources.name}-") as folder:
        # Elsewhere: Go writes down which modules it took, next to the sources.
        copy = shutil.copytree(sources, Path(folder, sources.name))
        _go(copy, "build", "-mod=mod", "-o", "program", ".")
        Path(copy, "program").replace(_next_to(kept))
    _next_to(kept).replace(kept)


def _next_to(kept: Path) -> Path:
    """It is whole when it has its name."""
    return kept.with_suffix(".new")


def _go(folder: Path, *arguments: str) -> None:
    try:
        subprocess.run(
            ["go", *arguments], cwd=folder, check=True, capture_output=True, text=True, timeout=BUILT_WITHIN_S
        )
    except subprocess.TimeoutExpired:
        raise NotBuilt(f"go {arguments[0]} took longer than {BUILT_WITHIN_S} s") from None
    except subprocess.CalledProcessError as failed:
        raise NotBuilt(_reason(failed.stderr)) from None


def _reason(said: str) -> str:
    """Of what Go prints: which module its registry has not given, or else the last line."""
    refused = re.search(r"(\S+@\S+): reading \S+: (.+)", said)
    lines = said.strip().splitlines()
    return " ".join(refused.groups()) if refused else lines[-1] if lines else "go said nothing"


def _digest(sources: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(sources.iterdir()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]

"""Write src/kizuna/match/openmatch anew from proto/: run `make protos`.

Generated code must not be newer than what runs it, so the generator is pinned to the oldest that we support, and lives
in a folder of its own. The messages are put into a pool of their own: a program that has other stubs of Open Match
in the usual pool could else not load ours.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import venv
from pathlib import Path

HOME = Path(__file__).parent.parent
SOURCES = HOME / "proto"
TARGET = HOME / "src" / "kizuna" / "match" / "openmatch"
GENERATOR = "grpcio-tools==1.75.1"
WITH_SERVICES = ("frontend", "backend", "query", "matchfunction", "evaluator")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        python = _python_with_generator(Path(folder) / "venv")
        made = Path(folder) / "made"
        made.mkdir()
        _generate(python, made)
        for path in sorted(made.rglob("*_pb2*")):
            (TARGET / path.name).write_text(_in_our_house(path.read_text()))


def _python_with_generator(folder: Path) -> Path:
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", GENERATOR)
    return python


def _generate(python: Path, made: Path) -> None:
    protoc = (python, "-m", "grpc_tools.protoc", f"-I{SOURCES}")
    files = sorted((SOURCES / "openmatch").glob("*.proto"))
    _run(*protoc, f"--python_out={made}", f"--pyi_out={made}", *files)
    _run(*protoc, f"--grpc_python_out={made}", *(path for path in files if path.stem in WITH_SERVICES))


def _in_our_house(text: str) -> str:
    text = re.sub(r"^from openmatch import", "from kizuna.match.openmatch import", text, flags=re.MULTILINE)
    pool = "from kizuna.match.openmatch import pool as _pool"
    text = text.replace("from google.protobuf import descriptor_pool as _descriptor_pool", pool)
    return text.replace("_descriptor_pool.Default()", "_pool.POOL")


def _run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True)


if __name__ == "__main__":
    main()

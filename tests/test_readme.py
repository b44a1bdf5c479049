"""What the README shows works as it stands there, and the Japanese one shows the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kizuna.cli import COMMANDS
from kizuna.configuration import flat, known_settings
from kizuna.settings import Settings

REPOSITORY = Path(__file__).parent.parent
ENGLISH = (REPOSITORY / "README.md").read_text()
JAPANESE = (REPOSITORY / "README.ja.md").read_text()
DOCUMENTS = sorted([*REPOSITORY.glob("*.md"), *(REPOSITORY / "docs").rglob("*.md")])

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"\s*# .*")


def blocks(text: str, language: str) -> list[str]:
    return [code for tag, code in _BLOCK.findall(text) if tag == language]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python as a reader calls it, but with an embedded server of the test's own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KIZUNA_", "PYTEST_"))}
    ours = {
        "XDG_CONFIG_HOME": str(folder / "config"),
        "KIZUNA_EMBEDDED__FOLDER": str(folder / "server"),
        "KIZUNA_EMBEDDED__PORT": "0",
    }
    line = [sys.executable, *arguments]
    return subprocess.run(line, cwd=folder, env=kept | ours, capture_output=True, text=True, timeout=120, check=False)


def run_as_tests(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    plugin = 'pytest_plugins = ["kizuna.testing.fixtures"]\n'
    options = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    (folder / "pytest.ini").write_text(options)
    (folder / "test_greeting.py").write_text(code if plugin in code else plugin + code)
    return run(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_greeting.py")


# what it shows works


def test_the_program_prints_what_the_readme_says(tmp_path: Path, server_folder: Path) -> None:
    program, _, _, _, _, _ = blocks(ENGLISH, "python")
    ended = run(tmp_path, "-c", program)

    assert (ended.returncode, ended.stderr) == (0, "")
    hello, change = ended.stdout.splitlines()
    assert f"It prints `{hello}` and `{change}`" in ENGLISH


def test_the_units_print_what_the_readme_says(tmp_path: Path, server_folder: Path) -> None:
    _, program, _, _, _, _ = blocks(ENGLISH, "python")
    ended = run(tmp_path, "-c", program)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert f"It prints `{ended.stdout.strip()}`." in ENGLISH


def test_the_fleet_prints_what_the_readme_says(tmp_path: Path, server_folder: Path) -> None:
    _, _, program, _, _, _ = blocks(ENGLISH, "python")
    ended = run(tmp_path, "-c", program)

    assert (ended.returncode, ended.stderr) == (0, "")
    half, lock, today = ended.stdout.splitlines()
    assert f"It prints `{half}`, `{lock}` and `{today}`" in ENGLISH


def test_the_memory_prints_what_the_readme_says(tmp_path: Path, server_folder: Path) -> None:
    _, _, _, program, _, _ = blocks(ENGLISH, "python")
    ended = run(tmp_path, "-c", program)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert f"It prints `{ended.stdout.strip()}`." in ENGLISH


def test_the_players_meet_where_the_readme_says(tmp_path: Path, server_folder: Path) -> None:
    _, _, _, _, program, _ = blocks(ENGLISH, "python")
    ended = run(tmp_path, "-c", program)

    assert (ended.returncode, ended.stderr) == (0, "")
    assert f"It prints `{ended.stdout.strip()}`." in ENGLISH


def test_the_test_passes(tmp_path: Path) -> None:
    _, _, _, _, _, test = blocks(ENGLISH, "python")
    ended = run_as_tests(tmp_path, test)

    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.splitlines()[-1].startswith("1 passed")


def test_the_examples_of_how_to_break_things_pass(tmp_path: Path) -> None:
    examples = blocks((REPOSITORY / "docs" / "testing.md").read_text(), "python")
    # An importer is for the reader to imagine; all others are whole.
    tests = [code for code in examples if "def test_" in code and "Importer" not in code]

    ended = run_as_tests(tmp_path, "\n\n".join(tests))

    assert ended.returncode == 0, ended.stdout
    assert ended.stdout.splitlines()[-1].startswith("5 passed")


def test_the_settings_exist() -> None:
    (file,) = blocks(ENGLISH, "toml")

    assert {name for name, _ in flat(tomllib.loads(file))} <= set(known_settings(Settings))


def test_the_commands_exist() -> None:
    lines = "".join(blocks(ENGLISH, "console"))
    targets = re.findall(r"^(\w+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)

    assert set(re.findall(r"^\$ make (\w+)", lines, re.MULTILINE)) <= set(targets)
    assert set(re.findall(r"^\$ kizuna (\w+)", lines, re.MULTILINE)) <= set(COMMANDS)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_of_every_document_leads_somewhere(document: Path) -> None:
    links = [link.partition("#")[0] for link in links_of(document.read_text()) if not link.startswith("http")]

    assert [link for link in links if not (document.parent / link).exists()] == []


def links_of(text: str) -> list[str]:
    return re.findall(r"\]\(([^)\s]+)\)", _BLOCK.sub("", text))


# the Japanese one shows the same


def without_comments(text: str) -> list[str]:
    return [_COMMENT.sub("", code) for _, code in _BLOCK.findall(text)]


def test_the_japanese_readme_has_the_same_code() -> None:
    assert without_comments(JAPANESE) == without_comments(ENGLISH)


def test_the_japanese_readme_names_the_same_things_and_leads_to_the_same_places() -> None:
    def named(text: str) -> set[str]:
        return set(re.findall(r"`([^`]+)`", _BLOCK.sub("", text)))

    assert named(JAPANESE) == named(ENGLISH)
    assert links_of(JAPANESE)[1:] == links_of(ENGLISH)[1:]
    assert (links_of(ENGLISH)[0], links_of(JAPANESE)[0]) == ("README.ja.md", "README.md")
    assert len(re.findall(r"^#", JAPANESE, re.MULTILINE)) == len(re.findall(r"^#", ENGLISH, re.MULTILINE))

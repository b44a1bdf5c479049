from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from kizuna.configuration import known_settings, variable_of
from kizuna.settings import Settings

TOOL = Path(__file__).parent.parent / "tools" / "generate_docs.py"


@pytest.fixture(scope="module")
def generate_docs() -> Any:
    spec = importlib.util.spec_from_file_location("generate_docs", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def settings_lines(generate_docs: Any) -> list[str]:
    lines: list[str] = generate_docs.settings_page().splitlines()
    return lines


@pytest.mark.parametrize("name", known_settings(Settings))
def test_every_setting_is_explained(settings_lines: list[str], name: str) -> None:
    (row,) = [line for line in settings_lines if f"`{variable_of(name)}` |" in line]

    *_, meaning, _ = row.split("|")
    assert len(meaning.split()) > 2


def test_pages_do_not_depend_on_the_width_of_the_terminal(generate_docs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    narrow = generate_docs.pages()
    monkeypatch.setenv("COLUMNS", "400")

    assert generate_docs.pages() == narrow


def test_the_check_names_the_page_that_is_not_current(
    generate_docs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generate_docs, "DOCS", tmp_path)

    assert generate_docs.main([]) == 0
    assert generate_docs.main(["--check"]) == 0
    (tmp_path / "settings.md").write_text("old")
    capsys.readouterr()

    assert generate_docs.main(["--check"]) == 1
    assert capsys.readouterr().err == "docs/settings.md is not current; run `make docs`\n"

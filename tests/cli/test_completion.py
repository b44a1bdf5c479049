from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from kizuna.cli import COMMANDS, command

MAIN = [sys.executable, "-c", "from kizuna.cli import main; main()"]


def completions(line: str) -> list[str]:
    """What `kizuna` answers a bash that asks how the last word of the line goes on."""
    words = line.split(" ")
    asked = {"_KIZUNA_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    ended = subprocess.run(MAIN, env={**os.environ, **asked}, capture_output=True, text=True, check=True, timeout=120)
    return [item.partition(",")[2] for item in ended.stdout.split()]


def test_commands_are_completed() -> None:
    assert completions("kizuna set") == ["settings"]
    assert completions("kizuna ") == list(COMMANDS)


def test_what_follows_a_command_is_completed() -> None:
    assert completions("kizuna settings c") == ["check"]
    assert completions("kizuna settings show store.u") == ["store.url", "store.username"]
    assert completions("kizuna settings show --o") == ["--origin"]
    assert completions("kizuna completion z") == ["zsh"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell_asks_kizuna(shell: str) -> None:
    ended = CliRunner().invoke(command, ["completion", shell])

    assert ended.exit_code == 0
    assert f"_KIZUNA_COMPLETE={shell}_complete" in ended.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_with_the_script(tmp_path: Path) -> None:
    script = CliRunner().invoke(command, ["completion", "bash"]).stdout
    (tmp_path / "kizuna").write_text(f"#!{sys.executable}\nfrom kizuna.cli import main\nmain()\n")
    (tmp_path / "kizuna").chmod(0o755)
    asking = 'COMP_WORDS=(kizuna set) COMP_CWORD=1; _kizuna_completion kizuna; echo "${COMPREPLY[@]}"'

    ended = subprocess.run(
        ["bash", "-c", f"{script}\n{asking}"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )

    assert (ended.stdout, ended.stderr) == ("settings\n", "")

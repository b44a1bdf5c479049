from __future__ import annotations

import inspect
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kizuna import errors
from kizuna._version import __version__
from kizuna.cli import COMMANDS, LazyGroup, Place, command
from kizuna.cli.exit_codes import MEANINGS, OF_ERROR, exit_code_of
from kizuna.cli.output import json_option, say, show

HEAVY = [
    "redis",
    "hiredis",
    "msgspec",
    "asyncio",
    "prometheus_client",
    "importlib.metadata",
    "kizuna.settings",
    "kizuna.store",
]


def run_python(code: str, *, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, timeout=30
    )


# what is loaded


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["setings"], []])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    ended = run_python(
        "import sys, atexit\n"
        "from kizuna.cli import main\n"
        "atexit.register(lambda: print('MODULES', *sys.modules))\n"
        f"sys.argv[1:] = {arguments!r}\n"
        "main()\n"
    )
    loaded = ended.stdout.partition("MODULES ")[2].split()

    assert "kizuna.cli" in loaded
    assert [name for name in HEAVY if name in loaded] == []
    assert [name for name in loaded if name.startswith("kizuna.cli.")] == ["kizuna.cli.exit_codes"]


def test_help_lists_every_command_with_a_line_of_help() -> None:
    text = CliRunner().invoke(command, ["--help"]).output

    for name, place in COMMANDS.items():
        assert f"  {name.ljust(max(map(len, COMMANDS)))}  {place.help}\n" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_the_line_of_help_in_the_list_is_the_one_of_the_command(name: str) -> None:
    assert isinstance(command, LazyGroup)

    assert command.load(name).get_short_help_str(limit=200) == COMMANDS[name].help


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_text_shows_an_example(name: str) -> None:
    assert isinstance(command, LazyGroup)
    loaded = command.load(name)
    verbs = list(loaded.commands) if isinstance(loaded, click.Group) else []

    for words in [[name], *([name, verb] for verb in verbs)]:
        text = CliRunner().invoke(command, [*words, "-h"]).output
        # Options of `kizuna` itself may stand before the noun.
        assert re.search(rf"\$ .*kizuna (--.* )?{' '.join(words)}\b", text), text


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (["doctor", "--url", "redis://db"], "--url stands before the command: kizuna --url … doctor"),
        (["server", "start", "--set=a.b=1"], "--set stands before the command: kizuna --set … server start"),
        (["doctor", "--jsn"], "No such option '--jsn'. Did you mean '--json'?"),
    ],
)
def test_an_option_of_kizuna_itself_behind_the_command_is_told_where_it_stands(line: list[str], told: str) -> None:
    ended = CliRunner().invoke(command, line, prog_name="kizuna")

    assert ended.exit_code == 2
    assert ended.stderr.splitlines()[-1] == f"Error: {told}"


# exit codes


def every_error() -> list[type[errors.KizunaError]]:
    classes = inspect.getmembers(errors, inspect.isclass)
    return [cls for _, cls in classes if issubclass(cls, errors.KizunaError)]


@pytest.mark.parametrize("error", every_error())
def test_every_error_has_a_decided_exit_code_that_is_documented(error: type[errors.KizunaError]) -> None:
    assert OF_ERROR[error] in MEANINGS


def test_an_error_of_a_users_own_counts_as_the_class_above_it() -> None:
    class QuotaReached(errors.OutOfMemory):
        pass

    assert exit_code_of(QuotaReached("full", "db", "wait")) == 5


@click.command()
@click.argument("code", type=int)
def fail(code: int) -> None:
    """Fails with an error that has this exit code."""
    failures = {
        69: errors.Unreachable("nobody answers", "db:6379", "start it"),
        75: errors.OutcomeUnknown("no answer\nin time", "db:6379", "look first"),
        77: errors.SignInRefused("wrong password", "db:6379", "set store.password_file"),
        78: errors.SettingsError("store.url is wrong", "store.port is not a setting"),
    }
    raise failures[code]


@click.command("list")
@json_option
def list_things(as_json: bool) -> None:
    """Prints some data and a message."""
    say("two things")
    show([{"thing": "絆", "size_bytes": 3}, {"thing": "tie", "size_bytes": None}], as_json=as_json)


toy = LazyGroup(
    "toy", places={"fail": Place(__name__, "fail", "Fail."), "list": Place(__name__, "list_things", "List.")}
)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (69, "Error: nobody answers at db:6379 (not sent); start it\n"),
        (75, "Error: no answer in time at db:6379 (unknown); look first\n"),
        (77, "Error: wrong password at db:6379 (not sent); set store.password_file\n"),
        (78, "Error: store.url is wrong\nError: store.port is not a setting\n"),
    ],
)
def test_an_error_is_one_line_on_stderr_and_an_exit_code(code: int, text: str) -> None:
    ended = CliRunner().invoke(toy, ["fail", str(code)])

    assert (ended.exit_code, ended.stdout, ended.stderr) == (code, "", text)


def test_ctrl_c_ends_with_130_and_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "patient.py").write_text(
        "import signal, click\n"
        "from kizuna.cli import LazyGroup, Place\n"
        "@click.command()\n"
        "def wait():\n"
        "    click.echo('waiting')\n"
        "    signal.pause()\n"
        "if __name__ == '__main__':\n"
        "    LazyGroup('patient', places={'wait': Place('patient', 'wait', 'Wait.')})(['wait'])\n"
    )
    with subprocess.Popen(
        [sys.executable, tmp_path / "patient.py"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        _, messages = process.communicate(timeout=120)

    assert (process.returncode, messages) == (130, "\n")


def test_a_reader_who_leaves_is_no_reason_for_a_traceback() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = run_python(
            "from kizuna.cli import main; import sys; sys.argv[1:] = ['version']; main()", stdout=writing
        )
    finally:
        os.close(writing)

    assert (ended.returncode, ended.stderr) == (1, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    "arguments", [["version"], ["version", "--json"], ["settings", "show"], ["completion", "bash"]]
)
def test_a_full_disk_gets_a_sentence(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        ended = run_python(
            f"from kizuna.cli import main; import sys; sys.argv[1:] = {arguments!r}; main()", stdout=full.fileno()
        )

    assert ended.returncode == 1
    assert ended.stderr.startswith("Error: the output cannot be written: No space left on device\n")
    assert "Traceback" not in ended.stderr


# usage


def test_a_misspelt_command_is_refused_and_the_right_one_named() -> None:
    ended = CliRunner().invoke(command, ["docter"])

    assert ended.exit_code == 2
    assert "No such command 'docter'. Did you mean 'doctor'?" in ended.stderr


def test_an_assignment_without_a_value_is_refused_and_not_repeated() -> None:
    ended = CliRunner().invoke(command, ["--set", "store.password:hunter2", "version"])

    assert ended.exit_code == 2
    assert "Invalid value for '--set': there is no '=' in it; write SECTION.NAME=VALUE" in ended.stderr
    assert "hunter2" not in ended.output


def test_the_version_can_be_asked_for_in_two_ways() -> None:
    assert CliRunner().invoke(command, ["--version"]).stdout == f"kizuna {__version__}\n"
    assert f'"kizuna": "{__version__}"' in CliRunner().invoke(command, ["version", "--json"]).stdout


def test_the_package_runs_as_a_module() -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "kizuna", "--version"], capture_output=True, text=True, check=True, timeout=30
    )

    assert ended.stdout == f"kizuna {__version__}\n"


# output


def test_rows_become_an_aligned_table_and_messages_go_elsewhere() -> None:
    ended = CliRunner().invoke(toy, ["list"])

    assert ended.stdout == "THING  SIZE BYTES\n絆     3\ntie    -\n"
    assert ended.stderr == "two things\n"


def test_rows_become_one_json_object_per_line() -> None:
    ended = CliRunner().invoke(toy, ["list", "--json"])

    assert ended.stdout == '{"thing": "絆", "size_bytes": 3}\n{"thing": "tie", "size_bytes": null}\n'


def test_a_record_becomes_aligned_lines(capsys: pytest.CaptureFixture[str]) -> None:
    show({"url": "embedded://", "ready": True, "latency_ms": 0.25, "users": ["a", "b"]}, as_json=False)

    assert capsys.readouterr().out == "url         embedded://\nready       yes\nlatency_ms  0.25\nusers       a, b\n"


def test_no_rows_print_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    show([], as_json=False)

    assert capsys.readouterr().out == ""

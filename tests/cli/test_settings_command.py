from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kizuna.cli import command
from kizuna.configuration import known_settings
from kizuna.settings import Settings

HIDDEN = "hunter2"


@pytest.fixture(autouse=True)
def nothing_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in [name for name in os.environ if name.startswith("KIZUNA_")]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)


def kizuna(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(command, arguments, env=environ)


def shown(*arguments: str, **environ: str) -> dict[str, dict[str, object]]:
    ended = kizuna(*arguments, "--json", **environ)
    assert ended.exit_code == 0, ended.stderr
    return {row["name"]: row for row in map(json.loads, ended.stdout.splitlines())}


# show


def test_show_lists_every_setting() -> None:
    assert list(shown("settings", "show")) == list(known_settings(Settings))


def test_show_tells_where_each_is_set(tmp_path: Path) -> None:
    (tmp_path / "kizuna.toml").write_text("[probes]\nport = 1\n")

    rows = shown(
        "--set", "embedded.port=2", "--url", "redis://db", "settings", "show", "--origin",
        KIZUNA_EVENTS__BUFFER="3",
    )  # fmt: skip

    assert rows["embedded.port"] == {"name": "embedded.port", "value": 2, "origin": "command line"}
    assert rows["store.url"] == {"name": "store.url", "value": "redis://db", "origin": "command line"}
    assert rows["events.buffer"]["origin"] == "environment KIZUNA_EVENTS__BUFFER"
    assert rows["probes.port"]["origin"] == str(tmp_path / "kizuna.toml")
    assert rows["roots.system"] == {"name": "roots.system", "value": "kizuna", "origin": "default"}


def test_show_is_a_table_for_people() -> None:
    assert kizuna("--set", "probes.port=9", "settings", "show", "probes", "--origin").stdout == (
        "NAME         VALUE      ORIGIN\nprobes.host  127.0.0.1  default\nprobes.port  9          command line\n"
    )


def test_show_takes_names_and_sections() -> None:
    assert list(shown("settings", "show", "probes", "store.url")) == ["store.url", "probes.host", "probes.port"]


def test_show_refuses_a_misspelt_name_and_tells_the_right_one() -> None:
    ended = kizuna("settings", "show", "store.ulr")

    assert ended.exit_code == 2
    assert "store.ulr is not a setting; did you mean store.url?" in ended.stderr


@pytest.mark.parametrize("options", [[], ["--origin"], ["--json"], ["--origin", "--json"]])
def test_show_hides_secrets(tmp_path: Path, options: list[str]) -> None:
    (tmp_path / "secret").write_text(HIDDEN)
    (tmp_path / "kizuna.toml").write_text(f"[store]\npassword = '{HIDDEN}'\n")

    ended = kizuna(
        "--url", f"rediss://me:{HIDDEN}@db", "settings", "show", *options,
        KIZUNA_STORE__SENTINEL_PASSWORD_FILE="secret",
    )  # fmt: skip

    assert ended.exit_code == 0
    assert ended.stdout.count("***") == 3
    assert HIDDEN not in ended.output


@pytest.mark.parametrize(("no_color", "coloured"), [("", True), ("1", False)])
def test_a_terminal_gets_colour_unless_no_color_is_set(no_color: str, coloured: bool) -> None:
    ended = CliRunner().invoke(command, ["settings", "show"], env={"NO_COLOR": no_color}, color=True)

    assert ("\x1b[" in ended.stdout) is coloured


# check


def test_check_says_which_files_were_read(tmp_path: Path) -> None:
    (tmp_path / "kizuna.toml").write_text("[probes]\nport = 1\n")
    user_file = tmp_path / "config" / "kizuna" / "kizuna.toml"
    user_file.parent.mkdir(parents=True)
    user_file.write_text("[events]\nbuffer = 5\n")

    ended = kizuna("settings", "check", "--json")

    assert (ended.exit_code, ended.stderr) == (0, "All settings are right.\n")
    assert json.loads(ended.stdout) == {
        "files": [str(tmp_path / "kizuna.toml"), str(user_file)],
        "changed": ["events.buffer", "probes.port"],
    }


def test_check_lists_every_problem_and_ends_with_78(tmp_path: Path) -> None:
    (tmp_path / "kizuna.toml").write_text(f"[store]\npasswort = '{HIDDEN}'\ntimeout_s = 0\n")

    variable, absent = "KIZUNA_STORE__PASSWORD_FILE", f"{tmp_path}/absent cannot be read: No such file or directory"
    ended = kizuna("--set", "embedded.port=x", "settings", "check", **{variable: "absent"})

    assert (ended.exit_code, ended.stdout) == (78, "")
    assert ended.stderr.splitlines() == [
        "Error: embedded.port = 'x' (command line): expected a whole number, at least 0 and at most 65535",
        f"Error: store.passwort ({tmp_path}/kizuna.toml) is not a setting; did you mean store.password?",
        f"Error: store.timeout_s = 0 ({tmp_path}/kizuna.toml): expected a number, above 0 and at most 86400",
        f"Error: store.password_file (environment {variable}): {absent}",
    ]


def test_check_refuses_a_server_of_an_unknown_kind_without_showing_its_password() -> None:
    ended = kizuna("--url", f"http://me:{HIDDEN}@db", "settings", "check")

    assert ended.exit_code == 78
    assert ended.stderr.startswith("Error: store.url 'http://me:***@db' is none of embedded://, redis://")
    assert ended.stderr.endswith("(command line)\n")


def test_check_opens_the_certificates_that_the_server_needs(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").touch()
    certificates = ["--set", "store.tls_ca_file=empty.pem", "settings", "check"]

    assert kizuna("--url", "redis://db", *certificates).exit_code == 0
    ended = kizuna("--url", "rediss://db", *certificates)

    assert ended.exit_code == 78
    assert ended.stderr.startswith("Error: store.tls_*: empty.pem cannot be used: ")


def test_wrong_settings_do_not_keep_help_from_being_shown() -> None:
    assert kizuna("--set", "no.such=1", "settings", "check", "--help").exit_code == 0
    assert kizuna("--config", "absent.toml", "settings", "show").exit_code == 78


def test_of_two_values_for_one_name_the_last_counts_and_the_url_option_above_all() -> None:
    arguments = ["--set", "probes.port=1", "--set", "probes.port=2", "--url", "redis://a", "--set", "store.url=x"]

    rows = shown(*arguments, "settings", "show")

    assert (rows["probes.port"]["value"], rows["store.url"]["value"]) == (2, "redis://a")

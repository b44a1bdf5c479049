from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kizuna.cli import command
from kizuna.cli.exit_codes import NOT_PERMITTED, USAGE
from kizuna.testing import ServerProcess

Acl = Callable[..., Result]


@pytest.fixture
def options(server_url: str, root: str) -> list[str]:
    roots = [f"roots.system={root}", f"roots.coordination={root}", f"roots.units={root}"]
    return ["--url", server_url, *[text for setting in roots for text in ("--set", setting)]]


@pytest.fixture
def acl(options: list[str]) -> Acl:
    return lambda *arguments: CliRunner().invoke(command, [*options, "units", "acl", *arguments])


def test_the_line_makes_a_user_that_may_be_this_unit_and_no_other(
    acl: Acl, options: list[str], server: ServerProcess, root: str, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("sesame\n")
    user = f"sensor-{root}"
    made = acl("Sensor", "--user", user, "--calls-nobody", "--password-file", str(secret))
    assert (made.exit_code, made.stderr) == (0, "")
    assert "sesame" not in made.stdout
    server.call(*made.stdout.split())
    try:
        signed_in = [*options, "--set", f"store.username={user}", "--set", "store.password=sesame", "units"]
        runner = CliRunner()

        assert runner.invoke(command, [*signed_in, "keep", "set", "sensor", "temp", "21.5"]).exit_code == 0
        assert runner.invoke(command, [*signed_in, "keep", "get", "sensor", "temp"]).stdout == "21.5"
        for line in (["keep", "get", "door", "state"], ["call", "door", "open", "--as", "sensor"]):
            assert runner.invoke(command, [*signed_in, *line]).exit_code == NOT_PERMITTED
    finally:
        server.call("ACL", "DELUSER", user)


def test_without_a_password_it_says_that_nobody_can_sign_in(acl: Acl) -> None:
    line = acl("Camera")

    assert line.stdout.startswith("ACL SETUSER camera reset on -@all +hello ")
    assert line.stderr.startswith("Nobody can sign in as camera before it has a password")


def test_a_line_for_a_file_and_for_machines(acl: Acl, root: str) -> None:
    assert acl("camera", "--acl-file").stdout.startswith("user camera on -@all ")
    told = json.loads(acl("camera", "--calls", "detector", "--reads", "sensor", "--no-serves", "--json").stdout)

    assert told["user"] == "camera"
    assert told["line"].endswith(" ".join(told["rules"]))
    assert {f"~{root}/camera/req/detector.*", f"%R~{root}/sensor/keep/*"} <= set(told["rules"])
    assert f"%R~{root}/*/req/camera.*" not in told["rules"]


@pytest.mark.parametrize("line", [["a.b"], ["camera", "--calls", "x", "--calls-nobody"], ["camera", "--reads", "a b"]])
def test_what_is_no_unit_gets_no_line(acl: Acl, line: list[str]) -> None:
    refused = acl(*line)

    assert (refused.exit_code, refused.stdout) == (USAGE, "")

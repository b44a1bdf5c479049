from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from kizuna.app import connect
from kizuna.cli import LazyGroup, command
from kizuna.cli.exit_codes import BAD_SETTINGS, BUSY, FAILURE
from kizuna.cli.match import COMMANDS, match
from kizuna.cli.match.serving import FirstFreeProbes
from kizuna.errors import CannotListen
from kizuna.match.openmatch import backend_pb2, frontend_pb2, messages_pb2, query_pb2
from kizuna.match.openmatch.backend_pb2_grpc import BackendServiceStub
from kizuna.match.openmatch.frontend_pb2_grpc import FrontendServiceStub
from kizuna.match.openmatch.query_pb2_grpc import QueryServiceStub
from kizuna.service import running
from kizuna.settings import ProbesSettings, Settings
from kizuna.testing.commands import Command, Runner
from kizuna.testing.waiting import blocking_until

FREE = ("--port", "0", "--http-port", "0")


def asked(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.loads(answer.readline())


def stub(kind: Any, channel: grpc.Channel) -> Any:
    return kind(channel)


def ticket_with(*tags: str) -> messages_pb2.Ticket:
    return messages_pb2.Ticket(search_fields=messages_pb2.SearchFields(tags=tags))


def test_a_game_is_served_by_grpc_and_http_until_it_is_told_to_stop(
    kizuna: Runner, start_match: Callable[..., Command], plan: str
) -> None:
    frontend = start_match("frontend", *FREE, "--probes")
    facts = frontend.facts
    with grpc.insecure_channel(facts["grpc"]) as channel:
        game = stub(FrontendServiceStub, channel)
        request = frontend_pb2.CreateTicketRequest(ticket=ticket_with("region:eu"))
        first = game.CreateTicket(request, timeout=120).id
        wanted = {"ticket": {"search_fields": {"tags": ["region:eu"]}}}
        second = asked(f"{facts['http']}/v1/frontendservice/tickets", wanted)["id"]
        assert kizuna.row("backend", plan, "--once")["assigned"] == 2
        watching = frontend_pb2.WatchAssignmentsRequest(ticket_id=first)
        answer = next(game.WatchAssignments(watching, timeout=120))

    told = asked(f"{facts['http']}/v1/frontendservice/tickets/{second}/assignments")
    assert told["result"]["assignment"]["connection"] == answer.assignment.connection == "game-1.example.com:7777"
    # As the clients of minimatch do, who know of one port only.
    read = asked(f"http://{facts['grpc']}/openmatch.FrontendService/GetTicket", {"ticketId": first})
    assert read["assignment"]["connection"] == "game-1.example.com:7777"
    assert asked(f"{facts['probes']}/readyz") == {"status": "ready", "problems": []}
    with urllib.request.urlopen(f"{facts['probes']}/metrics", timeout=120) as page:
        metrics = page.read().decode()
    assert 'kizuna_match_rpcs_total{code="OK",method="CreateTicket"} 1.0' in metrics
    assert 'kizuna_match_http_rpcs_total{code="OK",method="CreateTicket"} 1.0' in metrics
    code, said = frontend.end(signal.SIGTERM)
    assert (code, said.splitlines()[-1]) == (0, "Stopped by SIGTERM.")


def test_several_processes_share_the_ports(start_match: Callable[..., Command]) -> None:
    frontend = start_match("frontend", *FREE, "--processes", "2", "--probes")
    facts = frontend.facts

    assert len(set(facts["copies"])) == len(set(facts["probes"])) == 2
    assert facts["pid"] not in facts["copies"]
    for probes in facts["probes"]:
        assert asked(f"{probes}/readyz")["status"] == "ready"
    # Each connection goes to one of the two: whoever it is knows all tickets.
    id_ = asked(f"{facts['http']}/v1/frontendservice/tickets", {"ticket": {}})["id"]
    for _ in range(5):
        with grpc.insecure_channel(facts["grpc"]) as channel:
            request = frontend_pb2.GetTicketRequest(ticket_id=id_)
            assert stub(FrontendServiceStub, channel).GetTicket(request, timeout=120).id == id_
    assert frontend.end(signal.SIGTERM)[0] == 0


async def test_probes_of_copies_are_at_ports_one_behind_the_other(settings: Settings) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        async with connect(msgspec.structs.replace(settings, probes=ProbesSettings(port=port))) as k:
            probes = FirstFreeProbes(k, list, 1000)
            async with running(probes):
                found = int(probes.url.rpartition(":")[2])
            with pytest.raises(CannotListen):
                async with running(FirstFreeProbes(k, list, 1)):
                    pass

    assert port < found


def test_http_can_be_left_out(start_match: Callable[..., Command]) -> None:
    assert set(start_match("frontend", "--port", "0", "--no-http").facts) == {"grpc", "pid"}


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_port_that_is_taken_is_told(start_match: Callable[..., Command], kizuna: Runner, processes: str) -> None:
    port = start_match("frontend", *FREE).facts["grpc"].rpartition(":")[2]
    ended = kizuna("frontend", "--port", port, "--no-http", "--processes", processes)

    assert ended.exit_code == BUSY
    assert f"cannot listen on 127.0.0.1:{port} (Address already in use)" in ended.stderr


def test_directors_and_match_functions_are_served(start_match: Callable[..., Command], kizuna: Runner) -> None:
    ports = ["--backend-port", "0", "--query-port", "0", "--backend-http-port", "0", "--query-http-port", "0"]
    director = start_match("director", *ports, "--probes")
    facts = director.facts
    id_ = kizuna.row("ticket", "create", "--tag", "region:eu")["id"]
    pool = messages_pb2.Pool(name="eu", tag_present_filters=[messages_pb2.TagPresentFilter(tag="region:eu")])

    with grpc.insecure_channel(facts["query_grpc"]) as channel:
        pages = stub(QueryServiceStub, channel).QueryTicketIds(query_pb2.QueryTicketIdsRequest(pool=pool), timeout=120)
        assert [found for page in pages for found in page.ids] == [id_]
    found = asked(f"{facts['query_http']}/v1/queryservice/tickets:query", {"pool": {"name": "all"}})
    assert [ticket["id"] for ticket in found["result"]["tickets"]] == [id_]
    groups = {"assignments": [{"ticket_ids": [id_], "assignment": {"connection": "host:1"}}]}
    assert asked(f"{facts['backend_http']}/v1/backendservice/tickets:assign", groups) == {}
    assert kizuna.row("ticket", "get", id_)["assignment"]["connection"] == "host:1"
    with grpc.insecure_channel(facts["backend_grpc"]) as channel:
        stub(BackendServiceStub, channel).ReleaseAllTickets(backend_pb2.ReleaseAllTicketsRequest(), timeout=120)
    with urllib.request.urlopen(f"{facts['probes']}/metrics", timeout=120) as page:
        metrics = page.read().decode()
    # Of both servers, and each name once: a page with one twice is refused by who reads it.
    assert metrics.count("# TYPE kizuna_match_rpcs_open ") == 1
    for method in ("QueryTicketIds", "ReleaseAllTickets"):
        assert f'kizuna_match_rpcs_total{{code="OK",method="{method}"}} 1.0' in metrics
    assert director.end(signal.SIGTERM)[0] == 0


def test_a_backend_makes_matches_until_it_is_told_to_stop(
    start_match: Callable[..., Command], kizuna: Runner, plan: str
) -> None:
    backend = start_match("backend", plan, "-v", "--probes")
    waiting = [kizuna.row("ticket", "create", "--tag", "region:us")["id"]]
    ended = kizuna.done("ticket", "create", "--tag", "region:us", "--wait", "60")

    assert ended.stdout == "game-1.example.com:7777\n"
    assert backend.process.stdout is not None
    match = json.loads(backend.process.stdout.readline())
    assert (match["profile"], match["tickets"][:1], len(match["tickets"])) == ("duel", waiting, 2)
    assert match["connection"] == "game-1.example.com:7777"
    assert asked(f"{backend.facts['probes']}/readyz")["status"] == "ready"
    code, said = backend.end(signal.SIGTERM)
    assert (code, said.splitlines()[-1]) == (0, "Stopped by SIGTERM: 2 tickets assigned, 0 failures.")


def test_a_backend_is_a_member_of_the_fleet(start_match: Callable[..., Command], words: list[str], plan: str) -> None:
    backend = start_match("backend", plan)
    process = backend.facts["backend"].rpartition("~")[0]
    fleet = Runner(command, *words, "processes")

    assert process in {row["id"] for row in fleet.rows("ls")}
    backend.end(signal.SIGTERM)
    blocking_until(lambda: process not in {row["id"] for row in fleet.rows("ls")})


def test_one_tick_tells_what_it_did(kizuna: Runner, plan: str) -> None:
    for tag in ("region:eu", "region:eu", "region:us"):
        kizuna.done("ticket", "create", "--tag", tag)
    header, *rest = kizuna.done("backend", plan, "--once", "-v").stdout.splitlines()

    assert (header.split()[1], header.split()[-1]) == ("duel", "game-1.example.com:7777")
    told = dict(line.split() for line in rest)
    assert {name: told[name] for name in ("fetched", "matches", "assigned", "released")} == {
        "fetched": "3",
        "matches": "1",
        "assigned": "2",
        "released": "1",
    }


def test_a_failing_assigner_fails_the_tick_and_nobody_is_lost(kizuna: Runner, tmp_path: Path) -> None:
    (tmp_path / "broken_assigner.py").write_text("def assign(matches):\n    raise RuntimeError('no servers left')\n")
    path = tmp_path / "broken.toml"
    path.write_text(
        '[[profiles]]\nname = "duel"\nfunction = "one_against_one"\n[assigner]\nfunction = "broken_assigner:assign"\n'
    )
    ids = {kizuna.row("ticket", "create")["id"] for _ in range(2)}
    ended = kizuna("backend", str(path), "--once")

    assert ended.exit_code == FAILURE
    assert "no servers left" in ended.stderr
    assert {row["id"]: row["state"] for row in kizuna.rows("ticket", "ls")} == dict.fromkeys(ids, "waiting")


def test_a_plan_without_an_assigner_is_no_plan_for_a_backend(kizuna: Runner, tmp_path: Path) -> None:
    path = tmp_path / "half.toml"
    path.write_text('[[profiles]]\nname = "duel"\nfunction = "one_against_one"\n')
    ended = kizuna("backend", str(path), "--once")

    assert ended.exit_code == BAD_SETTINGS
    assert ended.stderr == f"Error: assigner ({path}) is missing: say where matches are played\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_says_the_same_about_itself_as_the_list(name: str) -> None:
    assert isinstance(match, LazyGroup)

    assert match.load(name).get_short_help_str(limit=200) == COMMANDS[name].help


def test_what_is_not_installed_is_told(words: list[str]) -> None:
    program = f"""
import sys
sys.modules["grpc"] = None  # as if it were not installed
sys.argv = ["kizuna", *{words!r}, "match", "frontend"]
from kizuna.cli import main
main()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)

    assert ended.returncode == FAILURE
    assert ended.stderr == "Error: there is no grpc here; pip install 'kizuna[match]' brings it\n"

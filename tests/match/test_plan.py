from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from kizuna.app import connect
from kizuna.errors import NoGameServer, SettingsError, WrongValue
from kizuna.match.backfills import Backfill
from kizuna.match.matches import Group, Match, Waiting
from kizuna.match.openmatch import messages_pb2
from kizuna.match.plan import Plan
from kizuna.match.plan.assigners import Template, assignment_of, match_as_dict
from kizuna.match.pools import EVERYONE, DoubleRange, Pool, Profile
from kizuna.match.tickets import Assignment, Ticket, new_ticket
from kizuna.settings import Settings

MODULE = """
from kizuna.match.matches import Match, best_first

def pairs(waiting):
    for tickets in waiting.pools.values():
        yield from (Match(pair) for pair in zip(tickets[::2], tickets[1::2]))

def groups_of(size):
    return lambda waiting: [Match(waiting.tickets[:size])]

def assign(matches):
    return [match.assigned("host:1") for match in matches]

def on(host):
    return lambda matches: [match.assigned(host) for match in matches]

evaluate = best_first
NUMBER = 7
"""


@pytest.fixture(autouse=True)
def imports_are_of_the_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each has a module of the same name, in a folder of its own."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("planned_functions", None)


@pytest.fixture
def load(tmp_path: Path) -> Callable[[str], Plan]:
    (tmp_path / "planned_functions.py").write_text(MODULE)

    def load(text: str) -> Plan:
        path = tmp_path / "plan.toml"
        path.write_text(dedent(text))
        return Plan.load(path)

    return load


@pytest.fixture
def problems(load: Callable[[str], Plan], tmp_path: Path) -> Callable[[str], list[str]]:
    """What is said about a plan, the name of the file without its folder."""

    def problems(text: str) -> list[str]:
        with pytest.raises(SettingsError) as refused:
            load(text)
        return [problem.replace(f"{tmp_path}/", "") for problem in refused.value.problems]

    return problems


def ticket(name: str) -> Ticket:
    message = new_ticket()
    message.id = name
    return Ticket(message)


def made(tickets: list[Ticket], plan: Plan, at: int = 0) -> list[list[str]]:
    """The tickets of the matches that the function of a profile makes."""
    one = plan.profiles[at]
    found: Any = one.function(Waiting(one.profile, {one.profile.pools[0].name: tickets}, now_s=0))
    return [match.ticket_ids for match in found]


def test_a_plan_says_who_meets_how_and_where(load: Callable[[str], Plan]) -> None:
    plan = load("""
        [[profiles]]
        name = "ranked"
        function = "planned_functions:pairs"
        [[profiles.pools]]
        name = "eu"
        tags = ["region:eu"]
        strings = { mode = "ranked" }
        doubles = { mmr = { min = 0, max = 2000, exclude = "max" }, age = { min = 18 } }
        created_before = 2026-01-31T12:00:00Z
        [[profiles]]
        name = "fun"
        function = "planned_functions:groups_of"
        options = { size = 3 }
        [profiles.assigner]
        function = "planned_functions:on"
        options = { host = "fun:1" }
        [assigner]
        function = "planned_functions:assign"
        [evaluator]
        function = "planned_functions:evaluate"
        [population]
        anything = "is the simulator's"
    """)
    ranked, fun = plan.profiles
    tickets = [ticket(name) for name in "abcd"]

    assert (ranked.profile.name, ranked.name, ranked.assigner) == ("ranked", "planned_functions:pairs", None)
    assert ranked.profile.pools == (
        Pool(
            "eu",
            tags=["region:eu"],
            strings={"mode": "ranked"},
            doubles=[DoubleRange("mmr", 0, 2000, "max"), DoubleRange("age", 18, math.inf)],
            created_before=1769860800,
        ),
    )
    assert fun.profile == Profile("fun", [EVERYONE])
    assert made(tickets, plan) == [["a", "b"], ["c", "d"]]
    assert made(tickets, plan, at=1) == [["a", "b", "c"]]
    assert plan.assigner is not None
    assert plan.evaluator is not None
    assert fun.assigner is not None
    match = Match(tickets, id="m")
    assert [*plan.assigner([match])] == [match.assigned("host:1")]  # type: ignore[misc]
    assert [*fun.assigner([match])] == [match.assigned("fun:1")]  # type: ignore[misc]
    assert plan.evaluator([match]) == ["m"]
    assert plan.population == {"anything": "is the simulator's"}
    assert [(profile, pool.name) for profile, pool in plan.pools()] == [("ranked", "eu"), ("fun", "everyone")]


async def test_a_backend_does_what_the_plan_says(load: Callable[[str], Plan], settings: Settings) -> None:
    plan = load("""
        [[profiles]]
        name = "eu"
        function = "planned_functions:pairs"
        pools = [{ name = "eu", tags = ["eu"] }]
        assigner = { connection = "{profile}.example.com" }
        [[profiles]]
        name = "us"
        function = "planned_functions:pairs"
        pools = [{ name = "us", tags = ["us"] }]
        assigner = { function = "planned_functions:assign" }
    """)
    async with connect(settings) as k:
        tickets = [await k.match.create_ticket(tags=[tag]) for tag in ("eu", "us", "eu", "us", "us")]
        tick = await plan.backend(k.match, fetch_limit=100).tick()
        found = [(await k.match.get_ticket(ticket.id)).assignment for ticket in tickets]

    assert sorted((match.profile, match.function) for match in tick.matches) == [
        ("eu", "planned_functions:pairs"),
        ("us", "planned_functions:pairs"),
    ]
    eu, us = Assignment("eu.example.com"), Assignment("host:1")
    assert found == [eu, us, eu, us, None]


async def test_a_backend_needs_to_know_where_matches_are_played(
    load: Callable[[str], Plan], settings: Settings
) -> None:
    plan = load(PROFILE)
    async with connect(settings) as k:
        with pytest.raises(SettingsError, match=r"plan\.toml\) is missing: say where matches are played"):
            plan.backend(k.match)


def test_a_ready_function_is_named_without_a_module(load: Callable[[str], Plan]) -> None:
    plan = load("""
        [[profiles]]
        name = "1v1"
        function = "one_against_one"
    """)

    assert made([ticket("a"), ticket("b"), ticket("c")], plan) == [["a", "b"]]
    assert (plan.assigner, plan.evaluator, plan.population) == (None, None, None)


def test_all_that_is_wrong_is_told_with_its_place(problems: Callable[[str], list[str]]) -> None:
    assert problems("""
        [[profiles]]
        nam = "ranked"
        function = "planned_functions:pairs"
        [[profiles.pools]]
        name = "eu"
        tags = "region:eu"
        strings = { mode = 1 }
        doubles = { mmr = { min = "low", top = 3, exclude = "all" } }
        created_after = "yesterday"
        [assigner]
        connection = 7
        [director]
        port = 1
    """) == [
        "director (plan.toml) means nothing; there are assigner, evaluator, population, profiles",
        "profiles[0].nam (plan.toml) means nothing; did you mean name?",
        "profiles[0].name (plan.toml) is missing",
        "profiles[0].pools[0].tags (plan.toml) = 'region:eu': expected a list",
        "profiles[0].pools[0].strings.mode = 1 (plan.toml): expected text",
        "profiles[0].pools[0].doubles.mmr.top (plan.toml) means nothing; there are exclude, max, min",
        "profiles[0].pools[0].doubles.mmr.min = 'low' (plan.toml): expected a number",
        "profiles[0].pools[0].doubles.mmr.exclude = 'all' (plan.toml): expected none or min or max or both",
        (
            "profiles[0].pools[0].created_after = 'yesterday' (plan.toml): expected a time with its zone, as "
            "2026-01-31T12:00:00Z"
        ),
        "assigner.connection = 7 (plan.toml): expected text",
    ]


PROFILE = """
    [[profiles]]
    name = "a"
    function = "planned_functions:pairs"
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("profiles = []", "profiles (plan.toml) is empty: nobody would ever be matched"),
        ("profiles = 3", "profiles (plan.toml) = 3: expected a list"),
        ("profiles = [3]", "profiles[0] (plan.toml) = 3: expected a table"),
        (PROFILE + PROFILE, "profiles[1].name = 'a' (plan.toml): another profile has this name"),
        ("[assigner]\nconnection = 'x'", "profiles (plan.toml) is missing"),
        (f"{PROFILE}[assigner]", "assigner (plan.toml): expected one of function, connection and exec"),
        (
            f"{PROFILE}[assigner]\nconnection = 'x'\nexec = ['y']",
            "assigner (plan.toml): expected one of function, connection and exec",
        ),
        (
            f"{PROFILE}[assigner]\nconnection = 'x{{game}}'",
            (
                "assigner.connection (plan.toml): a placeholder cannot be {game}; expected one of {match}, {profile}, "
                "{number}"
            ),
        ),
        (
            f"{PROFILE}[assigner]\nexec = ['./no-such']",
            "assigner.exec[0] = './no-such' (plan.toml): there is no such program",
        ),
        (
            f"{PROFILE}[[profiles.pools]]\nname = 'p'\ndoubles = {{ x = {{ min = 3, max = 2 }} }}",
            "profiles[0].pools[0].doubles.x = 3 to 2 (plan.toml): no number is in it",
        ),
        (
            f"{PROFILE}[[profiles.pools]]\nname = 'p'\ndoubles = {{ x = {{ min = nan }} }}",
            "profiles[0].pools[0].doubles.x = nan to inf (plan.toml): no number is in it",
        ),
        (
            f"{PROFILE}[[profiles.pools]]\nname = 'p'\ncreated_after = 2026-01-31T12:00:00",
            (
                "profiles[0].pools[0].created_after = '2026-01-31T12:00:00' (plan.toml): expected a time "
                "with its zone, as 2026-01-31T12:00:00Z"
            ),
        ),
    ],
)
def test_what_cannot_be_is_refused(problems: Callable[[str], list[str]], text: str, said: str) -> None:
    assert problems("\n".join(line.strip() for line in text.splitlines())) == [said]


@pytest.mark.parametrize(
    ("function", "options", "said"),
    [
        ("teems", "", "function = 'teems' (plan.toml): did you mean teams? Or write package.module:function"),
        (":pairs", "", "function = ':pairs' (plan.toml): write package.module:function"),
        ("no_such_module:f", "", "function = 'no_such_module:f' (plan.toml): No module named 'no_such_module'"),
        ("planned_functions:nobody", "", "has no attribute 'nobody'"),
        ("planned_functions:NUMBER", "", "that is no function, but 7"),
        ("planned_functions:groups_of", "{}", "options (plan.toml): missing a required argument: 'size'"),
        ("planned_functions:pairs", "{ waiting = 2 }", "options (plan.toml): what it makes is no function"),
        ("teams", "{ sise = 5 }", "options (plan.toml): there is no option 'sise'; did you mean size?"),
        (
            "teams",
            "{ size = 0 }",
            "options (plan.toml): size of teams cannot be 0; expected a whole number, at least 1",
        ),
    ],
)
def test_a_function_that_is_not_there_is_told(
    problems: Callable[[str], list[str]], function: str, options: str, said: str
) -> None:
    given = f"options = {options}" if options else ""
    [problem] = problems(f"""
        [[profiles]]
        name = "a"
        function = "{function}"
        {given}
    """)

    assert problem.startswith("profiles[0].")
    assert said in problem


def test_a_file_that_is_not_there_or_no_toml_is_told(load: Callable[[str], Plan], tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.toml cannot be read: No such file"):
        Plan.load(tmp_path / "nowhere.toml")
    with pytest.raises(SettingsError, match=r"plan\.toml: "):
        load("profiles = [")


def test_a_template_names_the_match_its_profile_and_a_number() -> None:
    match = Match([ticket("a")], id="m1", profile="ranked")

    assert Template("{profile}-{match}.example.com:{number}").fill(match, 7) == "ranked-m1.example.com:7"
    assert Template("plain:7777").fill(match, 7) == "plain:7777"
    with pytest.raises(WrongValue):
        Template("{match.id}")


def test_a_pattern_counts_the_matches(load: Callable[[str], Plan]) -> None:
    plan = load(PROFILE + '[assigner]\nconnection = "game-{number}:7777"')
    assert plan.assigner is not None
    first, second, third = (Match([ticket(name)]) for name in "abc")

    assert [*plan.assigner([first, second])] == [first.assigned("game-1:7777"), second.assigned("game-2:7777")]  # type: ignore[misc]
    assert [*plan.assigner([third])] == [third.assigned("game-3:7777")]  # type: ignore[misc]


@pytest.fixture
def program(load: Callable[[str], Plan], tmp_path: Path) -> Callable[..., Plan]:
    """A plan whose matches are assigned by a Python program."""

    def program(text: str, more: str = "") -> Plan:
        path = tmp_path / "allocate"
        path.write_text(f"#!{sys.executable}\n{dedent(text)}")
        path.chmod(0o755)
        return load(f'{PROFILE}[assigner]\nexec = ["./allocate", "{{profile}}"]\n{more}')

    return program


async def found_by(plan: Plan, *matches: Match) -> list[Group | Exception]:
    assert plan.assigner is not None
    return list(await plan.assigner(matches))  # type: ignore[misc]


async def assigned(plan: Plan, *matches: Match) -> list[tuple[list[str], Assignment]]:
    found = await found_by(plan, *matches)
    return [(list(group.ticket_ids), group.assignment) for group in found if isinstance(group, Group)]


async def test_a_program_finds_the_game_server_of_each_match(program: Callable[..., Plan]) -> None:
    plan = program("""
        import json, os, sys
        match = json.load(sys.stdin)
        assert os.environ["KIZUNA_MATCH_ID"] == match["id"]
        players = [ticket["id"] for ticket in match["tickets"]]
        print(json.dumps({"connection": f"{sys.argv[1]}:{match['id']}", "extensions": {"players": len(players)}}))
    """)
    matches = [Match([ticket("a"), ticket("b")], id="m1", profile="p"), Match([ticket("c")], id="m2", profile="p")]

    assert await assigned(plan, *matches) == [
        (["a", "b"], Assignment("p:m1", {"players": 2})),
        (["c"], Assignment("p:m2", {"players": 1})),
    ]


async def test_where_a_program_fails_only_that_match_has_no_server(program: Callable[..., Plan]) -> None:
    plan = program("""
        import json, sys
        match = json.load(sys.stdin)
        if match["id"] == "bad":
            sys.exit("no server is free")
        print("" if match["id"] == "silent" else "host:1")
    """)

    bad, good, silent = await found_by(plan, *(Match([ticket(name)], id=name) for name in ("bad", "good", "silent")))

    assert good == Group(["good"], Assignment("host:1"))
    assert isinstance(bad, NoGameServer)
    assert (bad.match, bad.reason) == ("bad", "the program ended with exit code 1: no server is free")
    assert isinstance(silent, NoGameServer)
    expected = "a connection, or JSON with connection and extensions"
    assert (silent.match, silent.reason) == ("silent", f"what the program prints cannot be ''; expected {expected}")


async def test_a_match_whose_name_no_program_can_be_told_has_no_server(program: Callable[..., Plan]) -> None:
    plan = program("print('host:1')")

    odd, good = await found_by(plan, *(Match([ticket(name)], id=name) for name in ("odd\0", "good")))

    assert good == Group(["good"], Assignment("host:1"))
    assert isinstance(odd, NoGameServer)
    assert odd.reason == "embedded null byte"


async def test_a_program_that_takes_too_long_is_killed(program: Callable[..., Plan]) -> None:
    plan = program("import time; time.sleep(600)", more="timeout_s = 0.1")

    [slow] = await found_by(plan, Match([ticket("a")], id="slow"))
    assert isinstance(slow, NoGameServer)
    assert (slow.match, slow.reason) == ("slow", "it took more than 0.1s")


@pytest.mark.parametrize(
    ("output", "assignment"),
    [
        (b"host:7777\n", Assignment("host:7777")),
        (b'{"connection": "h:1"}', Assignment("h:1")),
        (b'{"connection": "h:1", "extensions": {"a": 1, "b": "x"}}', Assignment("h:1", {"a": 1, "b": "x"})),
        (b"\xe5\xaf\xbf:1", Assignment("寿:1")),
    ],
)
def test_what_a_program_prints_is_a_connection_or_a_table(output: bytes, assignment: Assignment) -> None:
    assert assignment_of(output) == assignment


@pytest.mark.parametrize(
    "output",
    [
        b"",
        b"\n",
        b"two\nlines",
        b"{}",
        b"{nonsense",
        b'{"connection": 7}',
        b'{"connection": ""}',
        b'{"connection": "h:1", "extensions": 3}',
        b'{"connection": "h:1", "extensions": {"a": [1]}}',
        b"x" * 70_000,
    ],
)
def test_what_says_no_connection_is_refused(output: bytes) -> None:
    with pytest.raises(WrongValue):
        assignment_of(output)


def test_a_match_is_told_to_programs_as_plain_values() -> None:
    backfill = Backfill(messages_pb2.Backfill(id="b", generation=2))
    match = Match([ticket("a")], "m", "p", "f", 0.5, {"map": "dust"}, backfill, allocate=False)
    told = match_as_dict(match)

    assert json.loads(json.dumps(told)) == told
    assert told == {
        "id": "m",
        "profile": "p",
        "function": "f",
        "score": 0.5,
        "extensions": {"map": "dust"},
        "tickets": [ticket("a").as_dict()],
        "backfill": backfill.as_dict(),
        "allocate": False,
    }


def test_numbers_that_json_has_no_signs_for_are_told_as_text() -> None:
    fields = {"nan": math.nan, "most": math.inf, "least": -math.inf, "one": 1.0}
    player = Ticket(new_ticket(doubles=fields, extensions={"nan": math.nan}))
    backfill = Backfill(messages_pb2.Backfill(search_fields={"double_args": {"nan": math.nan}}))
    match = Match([player], "m", score=-math.inf, backfill=backfill)

    told = json.loads(json.dumps(match_as_dict(match), allow_nan=False))

    assert told["tickets"][0]["doubles"] == {"nan": "NaN", "most": "Infinity", "least": "-Infinity", "one": 1.0}
    assert told["tickets"][0]["extensions"] == {"nan": "NaN"}
    assert told["backfill"]["doubles"] == {"nan": "NaN"}
    assert told["score"] == "-Infinity"

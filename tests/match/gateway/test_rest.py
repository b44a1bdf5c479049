"""HTTP JSON as Open Match's gateway serves it: what is taken, what is answered, how is refused."""

from __future__ import annotations

import gzip
import json
import logging

import pytest
from tests.match.gateway.scripted import Scripted, served
from tests.match.gateway.talking import ask, conversation

from kizuna.match.gateway import Gateway
from kizuna.settings import MatchSettings

TICKET = {
    "search_fields": {"tags": ["a"], "double_args": {"skill": 1.5, "odd": "NaN"}, "string_args": {"mode": "ranked"}},
    "extensions": {"x": {"@type": "type.googleapis.com/google.protobuf.Int64Value", "value": "600000000000"}},
    "create_time": "2026-11-15T01:29:24.728573949Z",
}


async def test_a_message_comes_back_under_the_names_of_its_fields(gateway: Gateway) -> None:
    answer = await ask(gateway.url, "POST", "/v1/things", {"ticket": TICKET})

    assert answer.status == 200
    assert answer.json() == TICKET


async def test_camel_case_is_taken_as_well_and_what_is_not_known_is_passed_over(gateway: Gateway) -> None:
    sent = {"ticket": {"searchFields": {"doubleArgs": {"skill": 1}}, "later": [1]}, "other": {}}

    answer = await ask(gateway.url, "POST", "/v1/things", sent)

    assert answer.json() == {"search_fields": {"double_args": {"skill": 1.0}}}


async def test_a_request_without_a_body_is_one_without_fields(gateway: Gateway, scripted: Scripted) -> None:
    answer = await ask(gateway.url, "POST", "/v1/things")

    assert (answer.status, answer.json()) == (200, {})
    assert len(scripted.created) == 1


async def test_the_content_type_of_a_body_does_not_matter(gateway: Gateway) -> None:
    """curl says that it sends a form, whatever it sends."""
    headers = {"Content-Type": "application/x-www-form-urlencoded"}

    answer = await ask(gateway.url, "POST", "/v1/things", {"ticket": {"id": "a"}}, headers=headers)

    assert answer.json() == {"id": "a"}


async def test_a_body_in_gzip_is_unpacked(gateway: Gateway) -> None:
    body = gzip.compress(json.dumps({"ticket": {"id": "a"}}).encode())

    answer = await ask(gateway.url, "POST", "/v1/things", body, headers={"Content-Encoding": "gzip"})

    assert answer.json() == {"id": "a"}


async def test_what_stands_in_the_path_is_the_field(gateway: Gateway) -> None:
    ids = {
        "a?x=1": "a",
        "a%20b": "a b",
        "%E7%B5%86": "絆",
        "a:b": "a:b",
        "...": "...",
        "%00%0A": "\0\n",
        "%FF": "\N{REPLACEMENT CHARACTER}",
        "watch": "watch",
    }

    assert {path: (await ask(gateway.url, "GET", f"/v1/things/{path}")).json()["id"] for path in ids} == ids


async def test_an_empty_place_in_the_path_is_an_empty_field(gateway: Gateway) -> None:
    assert (await ask(gateway.url, "GET", "/v1/things/")).json() == {}


async def test_a_refusal_has_the_number_and_the_sentence_of_a_status(gateway: Gateway) -> None:
    not_found = (404, {"code": 5, "message": "Not Found"})
    not_allowed = (501, {"code": 12, "message": "Method Not Allowed"})
    expected = {
        ("GET", "/v1/things/missing"): (404, {"code": 5, "message": "ticket id: missing not found"}),
        ("GET", "/v1/things/full"): (429, {"code": 8, "message": "there is no room for it now; try again later"}),
        ("GET", "/v1/things/a%2Fb"): not_found,
        ("GET", "/v1/things/a/b"): not_found,
        ("GET", "/v1/things/../things/a"): not_found,
        ("GET", "/v1/things%2Fa/b/c"): not_found,
        ("GET", "/"): not_found,
        ("GET", "//"): not_found,
        ("GET", "*"): not_found,
        ("GET", "/v1/things"): not_allowed,
        ("PUT", "/v1/things/a"): not_allowed,
        ("OPTIONS", "/v1/things"): not_allowed,
        ("BREW", "/v1/things"): not_allowed,
    }

    answers = {asked: await ask(gateway.url, *asked) for asked in expected}

    assert {asked: (answer.status, answer.json()) for asked, answer in answers.items()} == expected


BROKEN = [
    b"{",
    b"[]",
    b'"ticket"',
    b"null",
    b"\xff\xfe{}",
    b"{" * 50_000,
    b'{"ticket":' * 50_000,
    b'{"ticket":5}',
    b'{"ticket":{"id":{}}}',
    b'{"ticket":{"id":"\\ud800"}}',
    b'{"ticket":{"id":' + b"9" * 5_000 + b"}}",
    b'{"ticket":{"createTime":"yesterday"}}',
    b'{"ticket":{},"ticket":{}}',
    b'{"ticket":{"searchFields":{"doubleArgs":{"a":1e999999}}}}',
    b'{"ticket":{"extensions":{"a":{"@type":"type.googleapis.com/game.Skin","colour":"red"}}}}',
    b'{"ticket":{"extensions":{"a":{"@type":7}}}}',
]


async def test_what_is_no_such_message_is_refused_and_the_connection_goes_on(gateway: Gateway) -> None:
    async with conversation(gateway.url) as talk:
        for body in BROKEN:
            await talk.request("POST", "/v1/things", body)

            assert await talk.status() == 400, body[:80]
            refusal = json.loads(await talk.whole_body())
            assert refusal["code"] == 3
            assert refusal["message"].startswith("the body is no ")

        await talk.request("GET", "/v1/things/a")
        assert await talk.status() == 200


async def test_what_goes_wrong_here_is_logged_under_a_number_and_not_told(
    gateway: Gateway, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, logger="kizuna.match.serving"):
        answer = await ask(gateway.url, "GET", "/v1/things/boom")

    assert (answer.status, answer.json()["code"]) == (500, 13)
    assert "secret" not in answer.body.decode()
    (record,) = caplog.records
    assert "secret" in repr(vars(record)["error"])
    assert answer.json()["message"].endswith(vars(record)["incident"])


async def test_an_extension_that_only_the_game_knows_cannot_be_told_in_json(gateway: Gateway) -> None:
    answer = await ask(gateway.url, "GET", "/v1/things/game")

    assert (answer.status, answer.json()["code"]) == (501, 12)
    assert "game.Skin" in answer.json()["message"]


async def test_a_caller_that_gives_us_too_little_time_is_told_so(gateway: Gateway) -> None:
    answer = await ask(gateway.url, "GET", "/v1/things/slow", headers={"Grpc-Timeout": "1m"})

    assert (answer.status, answer.json()["code"]) == (504, 4)


async def test_a_time_that_is_none_is_refused(gateway: Gateway) -> None:
    for timeout in ("soon", "1", "-1S", "123456789S", ""):
        answer = await ask(gateway.url, "GET", "/v1/things/a", headers={"Grpc-Timeout": timeout})

        assert (answer.status, answer.json()["code"]) == (400, 3), timeout


async def test_a_body_that_says_it_is_too_large_is_refused_before_it_is_sent(gateway: Gateway) -> None:
    async with conversation(gateway.url) as talk:
        await talk.send(b"POST /v1/things HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999\r\n\r\n")

        assert await talk.status() == 413
        assert json.loads(await talk.whole_body())["code"] == 8
        assert await talk.is_over()


async def test_a_body_that_grows_too_large_is_refused_on_its_way(scripted: Scripted) -> None:
    async with served(scripted) as gateway, conversation(gateway.url) as talk:
        await talk.send(b"POST /v1/things HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(5):
            await talk.send(b"100000\r\n" + b" " * 0x100000 + b"\r\n")

        assert await talk.status() == 413
        assert scripted.created == []


async def test_a_body_that_unpacks_to_too_much_is_refused(gateway: Gateway) -> None:
    bomb = gzip.compress(b" " * 64 * 1024 * 1024)

    answer = await ask(gateway.url, "POST", "/v1/things", bomb, headers={"Content-Encoding": "gzip"})

    assert (answer.status, answer.json()["code"]) == (413, 8)


async def test_a_larger_body_is_taken_where_larger_tickets_are(scripted: Scripted) -> None:
    async with served(scripted, MatchSettings(largest_bytes=8 * 1024 * 1024)) as gateway:
        answer = await ask(gateway.url, "POST", "/v1/things", {"ticket": {"id": "a" * 7 * 1024 * 1024}})

        assert answer.status == 200


async def test_an_encoding_has_to_be_known_and_right(gateway: Gateway) -> None:
    cut_off = gzip.compress(b"{}" * 99)[:-9]
    expected = {("gzip", b"{}"): 400, ("gzip", cut_off): 400, ("br", b"{}"): 501, ("identity", b"{}"): 200}

    for (encoding, body), status in expected.items():
        answer = await ask(gateway.url, "POST", "/v1/things", body, headers={"Content-Encoding": encoding})
        assert answer.status == status, (encoding, body)


async def test_a_client_that_leaves_within_its_body_has_made_no_call(gateway: Gateway, scripted: Scripted) -> None:
    async with conversation(gateway.url) as talk:
        await talk.send(b"POST /v1/things HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{")
        talk.leave()

    assert (await ask(gateway.url, "GET", "/v1/things/a")).status == 200
    assert scripted.created == []


async def test_what_is_no_http_is_turned_away_and_nobody_else_is(gateway: Gateway) -> None:
    for garbage in (b"\x16\x03\x01\x02\x00\x01", b"GET", b"\0" * 100, b"GET / HTTP/1.1\r\nContent-Length: few"):
        async with conversation(gateway.url) as talk:
            await talk.send(garbage + b"\r\n\r\n")
            assert await talk.status() == 400

    assert (await ask(gateway.url, "GET", "/v1/things/a")).status == 200


async def test_requests_that_come_in_one_piece_are_answered_in_their_order(gateway: Gateway) -> None:
    async with conversation(gateway.url) as talk:
        await talk.send(b"".join(b"GET /v1/things/%d HTTP/1.1\r\nHost: localhost\r\n\r\n" % n for n in range(20)))

        for number in range(20):
            assert await talk.status() == 200
            assert json.loads(await talk.whole_body()) == {"id": str(number)}

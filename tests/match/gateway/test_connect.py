"""Connect, as minimatch's clients speak it, and gRPC-Web, where one message is answered by one."""

from __future__ import annotations

import base64
import gzip
import struct

from tests.match.gateway.scripted import SERVICE, Scripted
from tests.match.gateway.talking import Answer, ask

from kizuna.match.gateway import Gateway
from kizuna.match.openmatch import frontend_pb2, messages_pb2

JSON = {"Content-Type": "application/json"}
PROTO = {"Content-Type": "application/proto"}


async def call(gateway: Gateway, method: str, body: object, **headers: str) -> Answer:
    """In JSON, unless the headers (with _ for -) say otherwise."""
    named = JSON | {name.replace("_", "-"): value for name, value in headers.items()}
    return await ask(gateway.url, "POST", f"/{SERVICE}/{method}", body, headers=named)


async def test_in_json_the_names_are_in_camel_case(gateway: Gateway) -> None:
    answer = await call(gateway, "Create", {"ticket": {"search_fields": {"tags": ["x"]}}}, Connect_Protocol_Version="1")

    assert (answer.status, answer.json()) == (200, {"searchFields": {"tags": ["x"]}})


async def test_a_message_of_protobuf_is_answered_by_one(gateway: Gateway) -> None:
    ticket = messages_pb2.Ticket(id="a")
    ticket.extensions["skin"].type_url = "type.googleapis.com/game.Skin"
    body = frontend_pb2.CreateTicketRequest(ticket=ticket).SerializeToString()

    answer = await ask(gateway.url, "POST", f"/{SERVICE}/Create", body, headers=PROTO)

    assert (answer.status, answer.headers["content-type"]) == (200, "application/proto")
    assert messages_pb2.Ticket.FromString(answer.body) == ticket


async def test_a_call_without_a_path_of_its_own_is_served_as_well(gateway: Gateway) -> None:
    assert (await call(gateway, "Hidden", {"ticketId": "a"})).json() == {"id": "a"}


async def test_a_parameter_of_the_content_type_does_not_matter(gateway: Gateway) -> None:
    answer = await call(gateway, "Get", {"ticketId": "a"}, Content_Type="Application/JSON; charset=utf-8")

    assert answer.json() == {"id": "a"}


async def test_a_body_in_gzip_is_unpacked(gateway: Gateway) -> None:
    body = gzip.compress(b'{"ticketId":"a"}')

    assert (await call(gateway, "Get", body, Content_Encoding="gzip")).json() == {"id": "a"}


async def test_errors_have_the_names_and_statuses_of_connect(gateway: Gateway) -> None:
    expected = {
        "missing": (404, {"code": "not_found", "message": "ticket id: missing not found"}),
        "full": (429, {"code": "resource_exhausted", "message": "there is no room for it now; try again later"}),
    }

    answers = {id_: await call(gateway, "Get", {"ticketId": id_}) for id_ in expected}

    assert {id_: (answer.status, answer.json()) for id_, answer in answers.items()} == expected


async def test_an_error_is_told_in_json_also_where_messages_are_not(gateway: Gateway) -> None:
    answer = await ask(gateway.url, "POST", f"/{SERVICE}/Get", b"\xff", headers=PROTO)

    assert (answer.status, answer.json()["code"]) == (400, "invalid_argument")


async def test_what_goes_wrong_here_is_not_told(gateway: Gateway) -> None:
    answer = await call(gateway, "Get", {"ticketId": "boom"})

    assert (answer.status, answer.json()["code"]) == (500, "internal")
    assert b"secret" not in answer.body


async def test_a_body_that_is_no_json_is_refused_also_if_it_is_empty(gateway: Gateway, scripted: Scripted) -> None:
    for body in (b"", b"{", b"[]", b"\xff"):
        answer = await call(gateway, "Create", body)
        assert (answer.status, answer.json()["code"]) == (400, "invalid_argument")
    assert scripted.created == []


async def test_a_client_that_gives_us_too_little_time_is_told_so(gateway: Gateway) -> None:
    answer = await call(gateway, "Get", {"ticketId": "slow"}, Connect_Timeout_Ms="1")

    assert (answer.status, answer.json()["code"]) == (504, "deadline_exceeded")


async def test_headers_of_connect_that_make_no_sense_are_refused(gateway: Gateway) -> None:
    for headers in (
        {"Connect_Timeout_Ms": "soon"},
        {"Connect_Timeout_Ms": "9" * 11},
        {"Connect_Protocol_Version": "2"},
    ):
        answer = await call(gateway, "Get", {"ticketId": "a"}, **headers)
        assert (answer.status, answer.json()["code"]) == (400, "invalid_argument"), headers


async def test_what_is_not_there_or_not_called_like_this_is_refused_with_what_would_do(gateway: Gateway) -> None:
    unknown = await call(gateway, "Guess", {})
    assert (unknown.status, unknown.json()["code"]) == (404, "unimplemented")

    by_get = await ask(gateway.url, "GET", f"/{SERVICE}/Get")
    assert (by_get.status, by_get.headers["allow"]) == (405, "POST")

    wrong_types = [
        ("Get", "text/plain"),
        ("Get", "application/connect+json"),
        ("Get", "application/grpc"),
        ("Watch", "application/json"),
    ]
    for method, content_type in wrong_types:
        wrong = await call(gateway, method, {}, Content_Type=content_type)
        assert wrong.status == 415
        known = wrong.headers["accept-post"].split(", ")
        assert ("application/connect+json" if method == "Watch" else "application/json") in known
        assert content_type not in known


async def test_a_body_that_is_too_large_is_refused(gateway: Gateway) -> None:
    answer = await call(gateway, "Get", gzip.compress(b" " * 5_000_000), Content_Encoding="gzip")

    assert (answer.status, answer.json()["code"]) == (413, "resource_exhausted")


# gRPC-Web


def framed(payload: bytes, flags: int = 0) -> bytes:
    return struct.pack(">BI", flags, len(payload)) + payload


OK = framed(b"grpc-status: 0\r\ngrpc-message: \r\n", 0x80)


async def test_grpc_web_answers_with_a_message_and_trailers(gateway: Gateway) -> None:
    request = frontend_pb2.GetTicketRequest(ticket_id="a").SerializeToString()
    found = messages_pb2.Ticket(id="a").SerializeToString()
    packed = framed(gzip.compress(request), 1)
    body = framed(request)
    in_pieces = base64.b64encode(body[:4]) + base64.b64encode(body[4:])

    for content_type, sent, expected in (
        ("application/grpc-web", body, framed(found) + OK),
        ("application/grpc-web+proto", packed, framed(found) + OK),
        ("application/grpc-web+json", framed(b'{"ticketId":"a"}'), framed(b'{"id": "a"}') + OK),
        ("application/grpc-web-text", base64.b64encode(body), base64.b64encode(framed(found)) + base64.b64encode(OK)),
        ("application/grpc-web-text+proto", in_pieces, base64.b64encode(framed(found)) + base64.b64encode(OK)),
    ):
        answer = await call(gateway, "Get", sent, Content_Type=content_type, Grpc_Encoding="gzip")
        assert (answer.status, answer.headers["content-type"], answer.body) == (200, content_type, expected)


async def test_grpc_web_tells_of_errors_in_its_trailers(gateway: Gateway) -> None:
    request = frontend_pb2.GetTicketRequest(ticket_id="missing").SerializeToString()

    answer = await call(gateway, "Get", framed(request), Content_Type="application/grpc-web")
    assert answer.body == framed(b"grpc-status: 5\r\ngrpc-message: ticket id: missing not found\r\n", 0x80)

    broken = await call(gateway, "Get", b"!!", Content_Type="application/grpc-web-text")
    assert base64.b64decode(broken.body)[5:].startswith(b"grpc-status: 3\r\n")


async def test_a_text_that_no_trailer_could_hold_is_escaped(gateway: Gateway) -> None:
    request = frontend_pb2.GetTicketRequest(ticket_id="missing 絆\r\n%").SerializeToString()

    answer = await call(gateway, "Get", framed(request), Content_Type="application/grpc-web")

    assert b"grpc-message: ticket id: missing %E7%B5%86%0D%0A%25 not found\r\n" in answer.body

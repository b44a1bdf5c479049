"""Items over HTTP; every answer is compared with its description."""

from __future__ import annotations

from typing import Any

import pytest
from tests.memory.rest.client import Client
from tests.memory.rest.serving import NOTE, serving

from kizuna.memory.keys import ITEM
from kizuna.settings import Secret, Settings
from kizuna.testing.servers import ServerProcess


async def test_an_item_is_created_read_changed_touched_and_deleted(api: Client) -> None:
    created = await api("POST", "/items", NOTE | {"id": "n", "priority": 7, "metadata": {"by": "Ana"}})
    assert created.status == 201
    assert (created.headers["etag"], created.headers["location"]) == ('"1"', "/items/n")
    assert created.body["content"] == {"text": "hello"}

    read = await api("GET", "/items/n")
    assert (read.status, read.headers["etag"], read.body) == (200, '"1"', created.body)
    assert (await api("GET", "/items/n?context=global")).body == read.body

    changed = await api("PATCH", "/items/n", {"content": None, "priority": 2})
    assert (changed.status, changed.headers["etag"]) == (200, '"2"')
    assert (changed.body["content"], changed.body["priority"], changed.body["metadata"]) == (None, 2, {"by": "Ana"})

    touched = await api("POST", "/items/n/touch")
    assert (touched.status, touched.body["version"]) == (200, 2)
    shorter = await api("POST", "/items/n/touch", {"ttl_s": 100_000})
    assert shorter.body["expires_at"] > touched.body["expires_at"]

    gone = await api("DELETE", "/items/n")
    assert (gone.status, gone.body) == (204, b"")
    assert (await api("GET", "/items/n")).status == 404


async def test_put_creates_or_replaces(api: Client) -> None:
    first = await api("PUT", "/items/n", NOTE)
    second = await api("PUT", "/items/n", {"type": "fact", "content": 2})

    assert [answer.status for answer in (first, second)] == [201, 200]
    assert (second.body["version"], second.body["type"]) == (2, "fact")
    assert second.body["created_at"] == first.body["created_at"]


async def test_an_item_is_moved_and_copied_to_other_contexts(api: Client) -> None:
    await api("PUT", "/items/n", NOTE)

    moved = await api("POST", "/items/n/move", {"to_context": "trip-7"})
    assert (moved.status, moved.headers["etag"], moved.body["context"]) == (200, '"2"', "trip-7")
    copied = await api("POST", "/items/n/copy", {"to_context": "trip-8", "new_id": "m"})
    assert (copied.status, copied.headers["location"], copied.body["context"]) == (201, "/items/m", "trip-8")
    assert copied.body["content"] == NOTE["content"]
    assert (await api("POST", "/items/n/copy", {"to_context": "trip-8"})).body["id"] not in ("n", "m")

    assert (await api("POST", "/items/n/move", {"to_context": "trip-8"}, If_Match='"1"')).status == 412
    late = {"to_context": "trip-8", "expected_version": 1}
    assert (await api("POST", "/items/n/move", late)).status == 409
    assert (await api("POST", "/items/n/copy", {"to_context": "trip-8", "new_id": "m"})).status == 409
    for what in ("move", "copy"):
        assert (await api("POST", f"/items/nobody/{what}", {"to_context": "trip-7"})).status == 404
        assert (await api("POST", f"/items/n/{what}", {})).status == 422
        assert (await api("POST", f"/items/n/{what}", {"to_context": "a b"})).status == 422
    assert (await api("GET", "/items/n")).body["context"] == "trip-7"


async def test_conditions_in_headers_are_answered_with_412(api: Client) -> None:
    await api("PUT", "/items/n", NOTE)

    assert (await api("PATCH", "/items/n", {"content": 2}, If_Match='"1"')).status == 200
    refused = await api("PATCH", "/items/n", {"content": 3}, If_Match='"1"')
    assert refused.status == 412
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.body == {
        "type": "about:blank",
        "title": "Precondition Failed",
        "status": 412,
        "detail": "item 'n' is at version 2, not 1, and stays so; read it, and decide again",
        "error": "VersionConflict",
        "facts": {"what": "item", "id": "n", "expected": 1, "actual": 2},
    }
    assert (await api("DELETE", "/items/n", If_Match='"1"')).status == 412
    assert (await api("PUT", "/items/n", NOTE, If_None_Match="*")).status == 412
    assert (await api("PUT", "/items/new", NOTE, If_None_Match="*")).status == 201
    assert (await api("PATCH", "/items/n", {"content": 3}, If_Match="*")).status == 200
    assert (await api("DELETE", "/items/n", If_Match='"3"')).status == 204


async def test_an_expected_version_in_the_body_is_answered_with_409(api: Client) -> None:
    await api("PUT", "/items/n", NOTE)

    refused = await api("PATCH", "/items/n", {"content": 2, "expected_version": 7})
    assert (refused.status, refused.body["facts"]["actual"]) == (409, 1)
    both = await api("PATCH", "/items/n", {"content": 2, "expected_version": 7}, If_Match='"1"')
    assert (both.status, both.detail) == (422, "If-Match and expected_version are two different versions")
    assert (await api("POST", "/items", NOTE | {"id": "n"})).status == 409


@pytest.mark.parametrize("condition", ["1", 'W/"1"', '"one"', '"1", "2"', ""])
async def test_a_condition_that_is_none_is_refused(api: Client, condition: str) -> None:
    await api("PUT", "/items/n", NOTE)

    assert (await api("PATCH", "/items/n", {"content": 2}, If_Match=condition)).status == 400
    assert (await api("PUT", "/items/n", NOTE, If_Match='"1"')).detail == (
        "PUT replaces whatever is there; PATCH takes If-Match"
    )
    assert (await api("PUT", "/items/n", NOTE, If_None_Match='"1"')).status == 400


@pytest.mark.parametrize("name", ["a/b", "a:b", "touch", "x/touch", "%41", "é", "a=b&c", "a+b", "a#b"])
async def test_ids_may_hold_what_keys_may(api: Client, name: str) -> None:
    from urllib.parse import quote

    created = await api("POST", "/items", NOTE | {"id": name})
    assert created.status == 201
    path = created.headers["location"]
    assert path == f"/items/{quote(name, safe='')}"
    assert (await api("GET", path)).body["id"] == name
    if "#" not in name and "%" not in name and name.isascii():
        assert (await api("GET", f"/items/{name}", check=False)).body["id"] == name
    assert (await api("POST", f"{path}/touch")).body["id"] == name
    assert (await api("DELETE", path)).status == 204


@pytest.mark.parametrize(
    "content", [None, [], {}, 0, 2**70, 0.1, "", "極 \U0001f600 \x00", {"a": {"b": [[], {}]}}], ids=repr
)
async def test_contents_come_back_as_they_were(api: Client, content: Any) -> None:
    created = await api("POST", "/items", {"type": "note", "content": content})

    assert created.status == 201
    assert (await api("GET", created.headers["location"])).body["content"] == content


async def test_lists_take_all_filters_and_go_on_by_cursor(api: Client) -> None:
    for number in range(7):
        item = {"type": "even" if number % 2 == 0 else "odd", "content": f"Number {number}", "priority": number + 1}
        await api("PUT", f"/items/n{number}", item | {"context": "c" if number < 4 else "d", "ttl_s": 100 + number})

    async def ids(query: str) -> list[str]:
        answer = await api("GET", f"/items?{query}")
        assert answer.status == 200, answer.body
        return [item["id"] for item in answer.body["items"]]

    assert await ids("") == [f"n{number}" for number in range(7)]
    assert await ids("type=odd") == ["n1", "n3", "n5"]
    assert await ids("context=d&newest_first=true") == ["n6", "n5", "n4"]
    assert await ids("priority=3") == ["n2"]
    assert await ids("priority_from=3&priority_to=4") == ["n2", "n3"]
    assert await ids("priority_from=6") == ["n5", "n6"]
    assert await ids("text=number%205") == ["n5"]
    ends = {item["id"]: item["expires_at"] for item in (await api("GET", "/items")).body["items"]}
    between = f"ends_after={(ends['n2'] + ends['n3']) / 2:.3f}&ends_before={(ends['n4'] + ends['n5']) / 2:.3f}"
    assert await ids(between) == ["n3", "n4"]

    found, cursor = [], ""
    while True:
        page = (await api("GET", f"/items?limit=3&cursor={cursor}")).body
        found += [item["id"] for item in page["items"]]
        cursor = page["cursor"]
        if not cursor:
            break
    assert found == [f"n{number}" for number in range(7)]


async def test_many_are_created_read_and_deleted_at_once(api: Client) -> None:
    created = await api("POST", "/batch/create", {"items": [NOTE | {"id": f"n{number}"} for number in range(3)]})
    assert (created.status, [item["id"] for item in created.body["items"]]) == (201, ["n0", "n1", "n2"])

    read = await api("POST", "/batch/get", {"ids": ["n1", "none", "n0"]})
    assert [item and item["id"] for item in read.body["items"]] == ["n1", None, "n0"]

    again = await api("POST", "/batch/create", {"items": [NOTE | {"id": "n1"}, NOTE | {"id": "n7"}]})
    assert (again.status, again.body["error"]) == (409, "ItemExists")
    assert "there is an item 'n1' already" in again.detail

    assert (await api("POST", "/batch/delete", {"ids": ["n0", "n1", "none", "n7"]})).body == {"deleted": 3}


async def test_one_half_of_a_surrogate_pair_that_others_wrote_is_passed_on(
    api: Client, server: ServerProcess, root: str
) -> None:
    await api("PUT", "/items/odd", NOTE)
    with server.connect() as conversation:
        conversation.call("HSET", ITEM.build(root, item="odd"), "content", '"\\ud800"')

    assert (await api("GET", "/items/odd")).body["content"] == "\ud800"


async def test_an_item_that_cannot_be_read_does_not_spoil_the_list(
    api: Client, server: ServerProcess, root: str
) -> None:
    await api("PUT", "/items/good", NOTE)
    await api("PUT", "/items/odd", NOTE)
    with server.connect() as conversation:
        conversation.call("HSET", ITEM.build(root, item="odd"), "content", "{no JSON")

    page = await api("GET", "/items")
    items = {item["id"]: item for item in page.body["items"]}
    assert items["good"]["content"] == {"text": "hello"}
    assert items["odd"]["content"] is None
    assert items["odd"]["problem"].startswith("b'{no JSON' is not the JSON it should be")
    assert (await api("GET", "/items/odd")).body["content"] is None


async def test_sealed_items_are_opened_for_those_who_may_call(settings: Settings) -> None:
    from tests.memory.test_sealing import NEW, in_base64

    async with serving(settings, seal_keys=Secret(f"new:{in_base64(NEW)}")) as (_, api):
        created = await api("POST", "/items", NOTE | {"id": "n", "sealed": True})
        assert (created.body["sealed"], created.body["content"]) == (True, {"text": "hello"})
        assert (await api("GET", "/items/n")).body["content"] == {"text": "hello"}
    async with serving(settings) as (_, api):
        refused = await api("POST", "/items", NOTE | {"sealed": True})
        assert (refused.status, refused.body["error"]) == (422, "CannotSeal")

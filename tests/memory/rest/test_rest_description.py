"""What the REST API says about itself is what it does."""

from __future__ import annotations

import json
import re

import msgspec
import pytest
from starlette.routing import Route
from tests.memory.rest.client import Client, wrong

from kizuna.app import Kizuna
from kizuna.memory.rest import app_of
from kizuna.memory.rest.openapi import OPENAPI


def paths_of(k: Kizuna) -> set[tuple[str, str]]:
    routes = [route for route in app_of(k).routes if isinstance(route, Route)]
    return {
        (method.lower(), re.sub(r":path}", "}", route.path))
        for route in routes
        for method in route.methods or ()
        if method != "HEAD"
    }


async def test_every_route_is_described_and_every_description_has_a_route(k: Kizuna) -> None:
    described = {
        (method, path) for path, entry in OPENAPI["paths"].items() for method in entry if method != "parameters"
    }

    assert paths_of(k) == described


def test_every_reference_in_the_description_leads_somewhere() -> None:
    references = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(OPENAPI)))

    assert references == set(OPENAPI["components"]["schemas"])


def test_every_path_says_what_its_places_are() -> None:
    for path, entry in OPENAPI["paths"].items():
        named = [parameter["name"] for parameter in entry.get("parameters", []) if parameter["in"] == "path"]
        assert named == re.findall(r"{(\w+)}", path)


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        ("NewItem", "NewItem"),
        ("ItemUpdate", "ItemUpdate"),
        ("Touch", "Touch"),
        ("NewItems", "NewItems"),
        ("Move", "Move"),
        ("Copy", "Copy"),
        ("Ids", "Ids"),
        ("Names", "Names"),
        ("NewContext", "NewContext"),
        ("ContextUpdate", "ContextUpdate"),
    ],
)
def test_bodies_have_the_fields_that_are_described(schema: str, body: str) -> None:
    from kizuna.memory.rest import bodies

    described = OPENAPI["components"]["schemas"][schema]
    fields = msgspec.structs.fields(getattr(bodies, body))
    assert set(described["properties"]) == {field.name for field in fields}
    assert set(described["required"]) == {field.name for field in fields if field.required}


@pytest.mark.parametrize(
    ("path", "query"), [("/items", "ItemFilter"), ("/contexts", "ContextFilter"), ("/events", "EventsFrom")]
)
def test_queries_have_the_parameters_that_are_described(path: str, query: str) -> None:
    from kizuna.memory.rest import bodies

    described = {each["name"] for each in OPENAPI["paths"][path]["get"]["parameters"]}
    assert described == {field.name for field in msgspec.structs.fields(getattr(bodies, query))}


async def test_the_description_is_served(api: Client) -> None:
    answer = await api("GET", "/openapi.json")

    assert answer.body == OPENAPI
    assert answer.body["openapi"] == "3.1.0"


def test_the_check_of_answers_finds_what_is_wrong() -> None:
    health = {"$ref": "#/components/schemas/Health"}
    assert wrong({"status": "healthy", "version": "1"}, health) == []
    assert wrong({"status": "well", "version": 1, "more": 2}, health) == [
        "$.status is 'well'",
        "$.version is no string but 1",
        "$.more is not described",
    ]
    assert wrong({"version": "1"}, health) == ["$.status is missing"]
    assert wrong({"ids": ["a", 1]}, {"$ref": "#/components/schemas/Ids"}) == ["$.ids[1] is no string but 1"]
    assert wrong(True, {"type": "integer"}) == ["$ is no integer but True"]

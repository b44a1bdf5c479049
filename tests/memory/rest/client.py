"""A plain HTTP client, and a check of what it gets against the description of the API."""

from __future__ import annotations

import asyncio
import http.client
import json
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from kizuna.memory.rest.openapi import OPENAPI
from kizuna.memory.rest.schemas import SCHEMAS


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any
    """JSON if it is that, else bytes."""

    @property
    def detail(self) -> str:
        detail: str = self.body["detail"]
        return detail


class Client:
    def __init__(self, url: str, token: str = "") -> None:
        self.address = urlsplit(url)
        self._token = token

    async def __call__(self, method: str, path: str, body: Any = None, *, check: bool = True, **headers: str) -> Answer:
        """Headers by their names with _ for -; `check`: whether the answer has to be as it is described."""
        answer = await asyncio.to_thread(self._ask, method, path, body, headers)
        if check:
            check_described(method, path, answer)
        return answer

    def _ask(self, method: str, path: str, body: Any, more: dict[str, str]) -> Answer:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        headers |= {"Authorization": f"Bearer {self._token}"} if self._token else {}
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection = http.client.HTTPConnection(self.address.hostname or "", self.address.port, timeout=20)
        try:
            connection.request(method, path, raw, headers)
            response = connection.getresponse()
            found = response.read()
            named = {name.lower(): value for name, value in response.getheaders()}
            is_json = named.get("content-type", "").endswith("json")
            return Answer(response.status, named, json.loads(found) if is_json and found else found)
        finally:
            connection.close()


# against the description


def check_described(method: str, path: str, answer: Answer) -> None:
    described = response_of(method, path, answer.status)
    media = answer.headers.get("content-type", "").partition(";")[0]
    if "content" not in described:
        assert answer.body == b"", f"{method} {path} is to answer nothing"
        return
    assert media in described["content"], f"{method} {path} answered {answer.status} with {media}"
    complaints = list(wrong(answer.body, described["content"][media]["schema"]))
    assert complaints == [], f"{method} {path}: {complaints}"


def response_of(method: str, path: str, status: int) -> dict[str, Any]:
    operation = OPENAPI["paths"][template_of(path.partition("?")[0])][method.lower()]
    described: dict[str, Any] = operation["responses"].get(str(status)) or operation["responses"]["default"]
    return described


def template_of(path: str) -> str:
    if path in OPENAPI["paths"]:
        return path
    _, first, *rest = path.split("/")
    action = f"/{first}/{{id}}/{rest[-1]}"
    return action if len(rest) > 1 and action in OPENAPI["paths"] else f"/{first}/{{id}}"


KINDS: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}


def wrong(value: Any, schema: dict[str, Any], at: str = "$") -> list[str]:
    """What is not as the schema says: enough of JSON Schema for the one that we have."""
    if "$ref" in schema:
        return wrong(value, SCHEMAS[schema["$ref"].rpartition("/")[2]], at)
    if "anyOf" in schema:
        found = [wrong(value, each, at) for each in schema["anyOf"]]
        return [] if [] in found else found[0]
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{at} is {value!r}"]
    if "type" not in schema:
        return []
    is_kind = isinstance(value, KINDS[schema["type"]]) and isinstance(value, bool) == (schema["type"] == "boolean")
    if not is_kind:
        return [f"{at} is no {schema['type']} but {value!r}"]
    if schema["type"] == "array":
        return [each for number, item in enumerate(value) for each in wrong(item, schema["items"], f"{at}[{number}]")]
    return wrong_in_object(value, schema, at) if schema["type"] == "object" and "properties" in schema else []


def wrong_in_object(value: dict[str, Any], schema: dict[str, Any], at: str) -> list[str]:
    properties = schema["properties"]
    found = [f"{at}.{name} is missing" for name in schema["required"] if name not in value]
    for name, each in value.items():
        if name in properties:
            found += wrong(each, properties[name], f"{at}.{name}")
        elif schema["additionalProperties"] is False:
            found.append(f"{at}.{name} is not described")
    return found

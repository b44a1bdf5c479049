"""The API, described as OpenAPI 3.1: written by hand, and compared with the routes by a test."""

from __future__ import annotations

from typing import Any

from kizuna._version import __version__
from kizuna.memory.rest.schemas import AT_END, FLAG, MOMENT, OBJECT, PRIORITY, SCHEMAS, TEXT, Schema, ref

PROBLEMS: dict[str, Any] = {
    "description": "What went wrong, as a sentence (RFC 9457).",
    "content": {"application/problem+json": {"schema": ref("Problem")}},
}


def body(name: str, *, required: bool = True) -> dict[str, Any]:
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": ref(name)}}}}


def answers(name: str, description: str, status: int = 200, media: str = "application/json") -> dict[str, Any]:
    schema = ref(name) if name else TEXT
    return {
        "responses": {
            str(status): {"description": description, "content": {media: {"schema": schema}}},
            "default": PROBLEMS,
        }
    }


def answers_nothing(description: str) -> dict[str, Any]:
    return {"responses": {"204": {"description": description}, "default": PROBLEMS}}


def operation(summary: str, *parts: dict[str, Any], parameters: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    whole: dict[str, Any] = {"summary": summary}
    if parameters:
        whole["parameters"] = parameters
    for part in parts:
        whole |= part
    return whole


def query(name: str, schema: Schema, description: str = "") -> dict[str, Any]:
    return {"name": name, "in": "query", "schema": schema} | ({"description": description} if description else {})


def header(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "schema": TEXT, "description": description}


ID: dict[str, Any] = {
    "name": "id",
    "in": "path",
    "required": True,
    "schema": TEXT,
    "description": "Percent-encoded where it holds more than letters, digits and -._~",
}
IN_CONTEXT = query("context", TEXT, "Where it is, if that is known: it spares a search over all shards.")
IF_MATCH = header("If-Match", 'The version it has to have, as in the ETag: "3". Answered with 412 if it has another.')
IF_NONE_MATCH = header("If-None-Match", "*: only if there is none. Answered with 412 if there is one.")
CURSOR = query("cursor", TEXT, "From the page before; empty for the first.")
LIMIT = query("limit", {"type": "integer", "minimum": 1, "maximum": 1000})
SINCE = query("since", TEXT, "The cursor of the last event that is known; 0: from the oldest, $: from now on.")
ITEM_FILTERS = [
    query("type", TEXT),
    query("context", TEXT),
    query("priority", PRIORITY),
    query("priority_from", PRIORITY),
    query("priority_to", PRIORITY),
    query("ends_after", MOMENT),
    query("ends_before", MOMENT),
    query("text", TEXT, "Somewhere in the content, in small letters or large."),
    query("newest_first", FLAG),
    LIMIT,
    CURSOR,
]

PATHS: dict[str, Any] = {
    "/health": {
        "get": operation(
            "Whether the server of the memory answers; needs no token.",
            {
                "security": [],
                "responses": {
                    status: {"description": description, "content": {"application/json": {"schema": ref("Health")}}}
                    for status, description in (("200", "It does."), ("503", "It does not."))
                },
            },
        )
    },
    "/openapi.json": {
        "get": operation(
            "This description; needs no token.",
            {
                "security": [],
                "responses": {"200": {"description": "It.", "content": {"application/json": {"schema": OBJECT}}}},
            },
        )
    },
    "/items": {
        "post": operation("Create an item.", body("NewItem"), answers("Item", "As it was created.", 201)),
        "get": operation(
            "List items, in the order of their creation.", answers("ItemPage", "A page."), parameters=ITEM_FILTERS
        ),
    },
    "/items/{id}": {
        "parameters": [ID],
        "get": operation("Read an item.", answers("Item", "The item."), parameters=[IN_CONTEXT]),
        "put": operation(
            "Create an item of this id, or replace it.",
            body("NewItem"),
            {
                "responses": answers("Item", "As it is now, in the place of another.")["responses"]
                | answers("Item", "As it was created.", 201)["responses"]
            },
            parameters=[IF_NONE_MATCH],
        ),
        "patch": operation(
            "Change what is named of an item, and nothing else.",
            body("ItemUpdate"),
            answers("Item", "As it is now."),
            parameters=[IN_CONTEXT, IF_MATCH],
        ),
        "delete": operation("Delete an item.", answers_nothing("It is gone."), parameters=[IN_CONTEXT, IF_MATCH]),
    },
    "/items/{id}/touch": {
        "parameters": [ID],
        "post": operation(
            "Let an item live its whole life again, or `ttl_s` from now.",
            body("Touch", required=False),
            answers("Item", "As it is now."),
            parameters=[IN_CONTEXT],
        ),
    },
    "/items/{id}/move": {
        "parameters": [ID],
        "post": operation(
            "Move an item to another context.",
            body("Move"),
            answers("Item", "As it is now."),
            parameters=[IN_CONTEXT, IF_MATCH],
        ),
    },
    "/items/{id}/copy": {
        "parameters": [ID],
        "post": operation(
            "Create another item like this one, with a life of its own.",
            body("Copy"),
            answers("Item", "The new one.", 201),
        ),
    },
    "/batch/create": {
        "post": operation("Create many items.", body("NewItems"), answers("CreatedItems", "In the same order.", 201))
    },
    "/batch/get": {
        "post": operation("Read many items.", body("Ids"), answers("FoundItems", "In the same order; null: not there."))
    },
    "/batch/delete": {
        "post": operation("Delete many items.", body("Ids"), answers("Deleted", "How many of them were there."))
    },
    "/contexts": {
        "post": operation("Create a context.", body("NewContext"), answers("Context", "As it was created.", 201)),
        "get": operation(
            "List contexts, in the order of their ids.",
            answers("ContextPage", "A page."),
            parameters=[query("type", TEXT), query("active", FLAG), LIMIT, CURSOR],
        ),
    },
    "/contexts/{id}": {
        "parameters": [ID],
        "get": operation("Read a context.", answers("Context", "The context.")),
        "patch": operation(
            "Change what is named of a context, and nothing else.",
            body("ContextUpdate"),
            answers("Context", "As it is now."),
            parameters=[IF_MATCH],
        ),
        "delete": operation(
            "Delete a context.",
            answers_nothing("It is gone."),
            parameters=[query("items", AT_END, "What becomes of its items, if not what it was told at its beginning.")],
        ),
    },
    "/contexts/{id}/activate": {
        "parameters": [ID],
        "post": operation("Let a context live longer by being used.", answers("Context", "As it is now.")),
    },
    "/contexts/{id}/deactivate": {
        "parameters": [ID],
        "post": operation("Let a context end in its time, used or not.", answers("Context", "As it is now.")),
    },
    "/contexts/{id}/touch": {
        "parameters": [ID],
        "post": operation("Let a context live its whole life again.", answers("Context", "As it is now.")),
    },
    "/events": {
        "get": operation(
            "What happened since a cursor. 410 if events behind it are gone.",
            answers("Events", "The next ones, and the cursor behind them."),
            parameters=[SINCE, LIMIT],
        )
    },
    "/events/stream": {
        "get": operation(
            "The same as server-sent events, and on: `id` is the cursor, `event` the kind, `data` an Event.",
            answers("", "A stream without an end.", media="text/event-stream"),
            parameters=[SINCE, header("Last-Event-ID", "The cursor of the last event that is known.")],
        )
    },
    "/changed": {
        "post": operation("End what depends on these names.", body("Names"), answers("Ended", "How many items ended."))
    },
    "/generations/{id}": {
        "parameters": [ID],
        "post": operation("Raise a generation: all older items end.", answers("Generation", "The new number.")),
    },
}

OPENAPI: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "kizuna memory", "version": __version__},
    "security": [{"token": []}, {}],
    "paths": PATHS,
    "components": {
        "schemas": SCHEMAS,
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
    },
}

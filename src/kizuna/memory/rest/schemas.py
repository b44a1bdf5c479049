"""What bodies and answers look like, as JSON Schema."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
ANYTHING: Schema = {}
OBJECT: Schema = {"type": "object"}
PRIORITY: Schema = {"type": "integer", "minimum": 1, "maximum": 10}
MOMENT: Schema = {"type": "number", "description": "Seconds since the epoch, by the server's clock."}
AT_END: Schema = {"enum": ["delete", "leave"]}
KIND: Schema = {"enum": ["item", "result", "state"]}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def many(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def maybe(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def record(needed: dict[str, Schema], **others: Schema) -> Schema:
    """An object with no other properties than these."""
    properties = needed | others
    return {
        "type": "object",
        "required": list(needed),
        "properties": properties,
        "additionalProperties": False,
    }


SCHEMAS: dict[str, Schema] = {
    "Item": record(
        {
            "id": TEXT,
            "type": TEXT,
            "context": TEXT,
            "priority": INTEGER,
            "content": ANYTHING,
            "metadata": OBJECT,
            "version": INTEGER,
            "created_at": MOMENT,
            "updated_at": MOMENT,
            "expires_at": MOMENT,
            "ttl_s": NUMBER,
            "sealed": FLAG,
            "from_backup": FLAG,
        },
        kind=KIND,
        depends_on=many(TEXT),
        generation=TEXT,
        generation_number=INTEGER,
        cost_s=NUMBER,
        importance=NUMBER,
        problem={"type": "string", "description": "Why the content cannot be shown."},
    ),
    "NewItem": record(
        {"type": TEXT, "content": ANYTHING},
        id=TEXT,
        context=TEXT,
        priority=PRIORITY,
        ttl_s=maybe(NUMBER),
        metadata=maybe(OBJECT),
        kind=KIND,
        cost_s=maybe(NUMBER),
        importance=maybe(NUMBER),
        depends_on=many(TEXT),
        generation=maybe(TEXT),
        sealed=maybe(FLAG),
    ),
    "ItemUpdate": record(
        {},
        content=ANYTHING,
        type=TEXT,
        priority=PRIORITY,
        ttl_s=NUMBER,
        metadata=OBJECT,
        sealed=FLAG,
        expected_version=INTEGER,
    ),
    "Touch": record({}, ttl_s=maybe(NUMBER)),
    "Move": record({"to_context": TEXT}, expected_version=INTEGER),
    "Copy": record({"to_context": TEXT}, new_id=TEXT),
    "ItemPage": record({"items": many(ref("Item")), "cursor": TEXT, "from_backup": FLAG}),
    "NewItems": record({"items": many(ref("NewItem"))}),
    "CreatedItems": record({"items": many(ref("Item"))}),
    "FoundItems": record({"items": many(maybe(ref("Item")))}),
    "Ids": record({"ids": many(TEXT)}),
    "Deleted": record({"deleted": INTEGER}),
    "Context": record(
        {
            "id": TEXT,
            "name": TEXT,
            "type": TEXT,
            "active": FLAG,
            "metadata": OBJECT,
            "version": INTEGER,
            "created_at": MOMENT,
            "updated_at": MOMENT,
            "expires_at": MOMENT,
            "ttl_s": NUMBER,
            "at_end": AT_END,
            "from_backup": FLAG,
        },
        problem={"type": "string", "description": "Why the metadata cannot be shown."},
    ),
    "NewContext": record(
        {"name": TEXT, "type": TEXT},
        id=TEXT,
        ttl_s=maybe(NUMBER),
        metadata=maybe(OBJECT),
        at_end=AT_END,
        active=FLAG,
    ),
    "ContextUpdate": record(
        {}, name=TEXT, type=TEXT, metadata=OBJECT, ttl_s=NUMBER, at_end=AT_END, expected_version=INTEGER
    ),
    "ContextPage": record({"contexts": many(ref("Context")), "cursor": TEXT, "from_backup": FLAG}),
    "Event": record(
        {
            "kind": TEXT,
            "id": TEXT,
            "type": TEXT,
            "context": TEXT,
            "version": INTEGER,
            "reason": TEXT,
            "at": MOMENT,
            "cursor": TEXT,
        }
    ),
    "Events": record({"events": many(ref("Event")), "cursor": TEXT}),
    "Names": record({"names": many(TEXT)}),
    "Ended": record({"ended": INTEGER}),
    "Generation": record({"generation": INTEGER}),
    "Health": record({"status": {"enum": ["healthy", "unhealthy"]}, "version": TEXT}, server_ms=NUMBER, problem=TEXT),
    "Problem": record(
        {"type": TEXT, "title": TEXT, "status": INTEGER, "detail": TEXT},
        error={"type": "string", "description": "The name of the error, such as VersionConflict."},
        facts=OBJECT,
    ),
}

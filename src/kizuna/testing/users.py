"""Users of a server, for tests of what they may do and may not."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from kizuna.settings import Secret, Settings
from kizuna.survey.acl import set_user
from kizuna.testing.servers import ServerProcess

_PASSWORD = "a long password"  # noqa: S105 - of users that live as long as a test


@contextmanager
def signed_in(servers: Sequence[ServerProcess], settings: Settings, rules: Sequence[str]) -> Iterator[Settings]:
    """The settings, for a user with these rules, which is there while the block runs."""
    user = f"user-{secrets.token_hex(4)}"
    for server in servers:
        server.call(*set_user(user, rules, password=_PASSWORD).split(" "))
    try:
        store = msgspec.structs.replace(settings.store, username=user, password=Secret(_PASSWORD))
        yield msgspec.structs.replace(settings, store=store)
    finally:
        for server in servers:
            server.call("ACL", "DELUSER", user)

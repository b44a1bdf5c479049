"""What store.url may say, and that a password is in no text of ours."""

from __future__ import annotations

import pytest

from kizuna.errors import SettingsError
from kizuna.settings import Settings, StoreSettings
from kizuna.store.dialing import Address
from kizuna.store.targets import Target, parse_target
from kizuna.store.topology import make_dialer


def target(url: str, **options: str) -> Target:
    return parse_target(StoreSettings(url=url, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("embedded://", Target(kind="embedded")),
        ("embedded", Target(kind="embedded")),
        ("redis://", Target(kind="single", addresses=(Address("127.0.0.1", 6379),))),
        ("redis://host", Target(kind="single", addresses=(Address("host", 6379),))),
        ("redis://host:7000/3", Target(kind="single", addresses=(Address("host", 7000),), database=3)),
        ("redis://host?db=3", Target(kind="single", addresses=(Address("host", 6379),), database=3)),
        ("redis://[::1]:7000", Target(kind="single", addresses=(Address("::1", 7000),))),
        ("rediss://host", Target(kind="single", addresses=(Address("host", 6379),), tls=True)),
        ("valkey://host", Target(kind="single", addresses=(Address("host", 6379),))),
        ("valkeys+cluster://host", Target(kind="cluster", addresses=(Address("host", 6379),), tls=True)),
        ("unix:///run/valkey.sock", Target(kind="single", addresses=(Address("/run/valkey.sock"),))),
        ("unix:///run/a%20b.sock?db=2", Target(kind="single", addresses=(Address("/run/a b.sock"),), database=2)),
        (
            "redis+sentinel://a,b:7000/main?db=1",
            Target(
                kind="sentinel", addresses=(Address("a", 26379), Address("b", 7000)), primary_name="main", database=1
            ),
        ),
        ("rediss+cluster://a,b:1", Target(kind="cluster", addresses=(Address("a", 6379), Address("b", 1)), tls=True)),
    ],
)
def test_every_kind_of_place_has_its_url(url: str, expected: Target) -> None:
    assert target(url) == expected


def test_user_and_password_stand_in_the_url_or_in_settings_which_win() -> None:
    assert (target("redis://app:p%40ss@h").username, target("redis://app:p%40ss@h").password) == ("app", "p@ss")
    assert target("redis://:pw@h").password == "pw"
    assert target("unix://app:pw@/run/s").password == "pw"
    named = target("redis://app:pw@h", username="other", password="secret")
    assert (named.username, named.password) == ("other", "secret")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://host", "is none of embedded://, redis://, rediss://"),
        ("host:6379", "is none of embedded://"),
        ("redis:/host", "two slashes follow the colon, as in redis://"),
        ("redis:host", "two slashes follow the colon, as in redis://"),
        ("embedded:", "two slashes follow the colon, as in embedded://"),
        ("redis://a,b", "several hosts need redis+sentinel:// or redis+cluster://"),
        ("redis+cluster://a,", "there is nothing between two commas, or after the last"),
        ("redis+sentinel://a", "the name of the primary is missing, as in redis+sentinel://host:26379/main"),
        ("redis+cluster://a/1", "a cluster has no database numbers"),
        ("redis+cluster://a?db=1", "a cluster has no database numbers"),
        ("redis://h/main", "'main' is not the number of a database"),
        ("redis://h?dbb=1", "'dbb' is not known here; only ?db=<number> is"),
        ("redis://h:0", "a port is a number from 1 to 65535"),
        ("redis://h:99999", "a port is a number from 1 to 65535"),
        ("unix://", "the path of the socket starts with a third slash"),
        ("unix://run/valkey.sock", "the path of the socket starts with a third slash"),
        ("embedded://host", "embedded:// takes nothing behind it"),
        ("embedded:///data", "embedded:// takes nothing behind it"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_sentence(url: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        target(url)

    assert sentence in str(refused.value)
    assert url in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://app:hunter2/hunter3@host:6379/0",
        "redis://app:hunter2#hunter3@host",
        "redis://app:hunter2?hunter3@host",
        "redis://app:hunter2@host:port",
        "redis://app:hunter2@host/name",
        "http://app:hunter2@host",
        "redis://app:hunter2[@host",
    ],
)
def test_no_error_shows_a_piece_of_the_password(url: str) -> None:
    with pytest.raises(SettingsError) as refused:
        target(url)

    assert "hunter" not in str(refused.value)


def test_no_repr_shows_the_password() -> None:
    settings = Settings(store=StoreSettings(url="redis://app:hunter2@host"))
    parsed = parse_target(settings.store)

    assert "hunter2" not in repr(parsed)
    assert "hunter2" not in repr(make_dialer(settings, parsed))
    assert "hunter2" not in repr(settings)

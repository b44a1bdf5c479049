"""What a unit sends: any status, any id, any bytes, for as long as was said; and nothing that may not be sent."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kizuna.app import Kizuna, connect
from kizuna.codecs import JSON, MSGPACK, RAW, TEXT, Codec
from kizuna.errors import IllegalName, TooLarge, Undecodable, Unreachable, WrongValue
from kizuna.settings import Settings, UnitsSettings
from kizuna.testing import eventually
from kizuna.units.paths import LONGEST_UNIT

# What lies between the write and the look; a loaded machine is given some seconds.
SLACK_MS = 5_000

EVERYTHING = bytes(range(256))


async def echo(data: Any) -> Any:
    return data


async def lives_ms(k: Kizuna, path: str) -> int:
    return int(await k.store.call("PTTL", f"{k.units.root}/{path}"))


async def value_of(k: Kizuna, path: str) -> bytes | None:
    value: bytes | None = await k.store.call("GET", f"{k.units.root}/{path}")
    return value


async def number_of_keys(k: Kizuna) -> int:
    return len(await k.store.call("KEYS", f"{k.units.root}/*"))


# -- what is sent --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["req", "res", "err", "keep"])
async def test_send_writes_these_bytes_of_any_status_and_any_id(k: Kizuna, status: str) -> None:
    camera = k.unit("camera")
    for id_, body in {"42": EVERYTHING, "a.b.c": b"", "寿司:ä%+": b"\0"}.items():
        await camera.send(status, id_, body)
        assert await value_of(k, f"camera/{status}/{id_}") == body


async def test_send_writes_into_the_space_of_another_unit_too(k: Kizuna) -> None:
    await k.unit("camera").send("res", "42", b"done", unit="Other")

    assert await value_of(k, "other/res/42") == b"done"
    assert await value_of(k, "camera/res/42") is None


@pytest.mark.parametrize("ttl_s", [0.25, 1.5, 7, 86_400 * 365])
async def test_a_value_lives_as_long_as_was_said_also_for_fractions_of_a_second(k: Kizuna, ttl_s: float) -> None:
    await k.unit("camera").send("keep", "42", b"x", ttl_s=ttl_s)

    left_ms = await lives_ms(k, "camera/keep/42")
    assert left_ms in (-2, *range(1, 251)) if ttl_s == 0.25 else ttl_s * 1000 - SLACK_MS < left_ms <= ttl_s * 1000


async def test_the_shortest_life_is_a_millisecond_and_not_an_error(k: Kizuna) -> None:
    await k.unit("camera").send("keep", "42", b"x", ttl_s=0.0001)

    await eventually(lambda: gone(k, "camera/keep/42"))


async def gone(k: Kizuna, path: str) -> bool:
    return await lives_ms(k, path) == -2


@pytest.mark.parametrize("ttl_s", [0, -1, float("nan"), float("inf"), 10**12])
async def test_a_life_that_no_value_can_have_is_refused(k: Kizuna, ttl_s: float) -> None:
    camera = k.unit("camera")
    for refused in (
        camera.send("keep", "42", b"x", ttl_s=ttl_s),
        camera.request("detector", b"x", ttl_s=ttl_s),
        camera.request("detector", b"x", timeout_s=ttl_s),
    ):
        with pytest.raises(WrongValue, match="above 0"):
            await refused
    with pytest.raises(WrongValue, match="above 0"):
        k.unit("camera", response_s=ttl_s)
    assert await number_of_keys(k) == 0


# -- the same in capitals ------------------------------------------------------------------------------------------


async def test_upper_case_in_any_argument_is_the_same_as_lower_case(k: Kizuna) -> None:
    camera, seen = k.unit("Camera"), []

    async def note(data: bytes, request: Any) -> bytes:
        seen.append((request.caller, request.id, request.path))
        return data

    async with k.unit("DETECTOR").serving(note), camera.listen(f"{k.units.root.upper()}/*/RES/*") as messages:
        assert await camera.request("DeTecTor", b"Data", id="ABC") == b"Data"
        message = await messages.next(timeout_s=5)
    await camera.send("KEEP", "State", b"On", unit="OTHER")

    assert camera.name == "camera"
    assert seen == [("camera", "detector.abc", f"{k.units.root}/camera/req/detector.abc")]
    assert message is not None
    assert (message.unit, message.status, message.id) == ("camera", "res", "detector.abc")
    assert await value_of(k, "other/keep/state") == b"On"
    assert all(key == key.lower() for key in await k.store.call("KEYS", "*") if key.startswith(k.units.root.encode()))


async def test_a_server_with_a_pattern_in_capitals_hears_lower_case(k: Kizuna) -> None:
    async with k.unit("Detector").serving(echo, pattern=f"{k.units.root}/*/REQ/JOB-*"):
        assert await k.unit("camera").request(None, b"x", id="Job-1") == b"x"


# -- what may not be sent ------------------------------------------------------------------------------------------

ILLEGAL = ["", "a/b", "a b", "a\nb", "a\0b", "*", "a?", "[a]", "x" * 1000]


@pytest.mark.parametrize("part", ILLEGAL)
async def test_an_illegal_part_is_refused_before_anything_is_sent(k: Kizuna, part: str) -> None:
    camera = k.unit("camera")
    for refused in (
        camera.send("req", part, b"x"),
        camera.send("req", "42", b"x", unit=part),
        camera.send(part, "42", b"x"),
        camera.request(part, b"x"),
        camera.request("detector", b"x", id=part),
    ):
        with pytest.raises(IllegalName):
            await refused
    with pytest.raises(IllegalName):
        k.unit(part)
    assert await number_of_keys(k) == 0


async def test_a_name_with_a_dot_can_neither_serve_nor_be_called(k: Kizuna) -> None:
    with pytest.raises(IllegalName, match="dot"):
        k.unit("detector.1")
    with pytest.raises(IllegalName, match="dot"):
        await k.unit("camera").request("detector.1", b"x")


async def test_the_longest_name_that_a_unit_may_have_can_be_called_and_call(k: Kizuna) -> None:
    name = "ü" * LONGEST_UNIT
    async with k.unit(name).serving(echo):
        assert await k.unit(name[:-1] + "Y").request(name, b"x") == b"x"
    for longer in (name + "x", "x" * 256):
        with pytest.raises(IllegalName, match="longer than"):
            k.unit(longer)
        with pytest.raises(IllegalName, match="longer than"):
            await k.unit("camera").request(longer, b"x")


@pytest.mark.parametrize(
    "pattern", ["muf/*/req/*", "{root}/*/req", "{root}/*/req/a/b", "{root}//req/*", "{root}/*/rex/*", ""]
)
async def test_a_pattern_that_fits_no_path_is_refused(k: Kizuna, pattern: str) -> None:
    pattern = pattern.format(root=k.units.root)
    with pytest.raises(IllegalName):
        k.unit("camera").listen(pattern)
    with pytest.raises(IllegalName):
        k.unit("camera").server(echo, pattern=pattern)


# -- how long it lives if nothing is said --------------------------------------------------------------------------


async def lives_s(k: Kizuna, paths: dict[str, float]) -> None:
    for path, expected_s in paths.items():
        left_ms = await lives_ms(k, path)
        assert expected_s * 1000 - SLACK_MS < left_ms <= expected_s * 1000, path


async def write_one_of_each(k: Kizuna, **of_unit: Any) -> None:
    """A request that got a reply, one that got an error, and a state."""
    camera = k.unit("camera", **of_unit)

    async def answer(data: bytes) -> bytes:
        if data:
            raise ValueError("no")
        return data

    async with k.unit("detector", **of_unit).serving(answer):
        await camera.request("detector", b"", id="good")
        with pytest.raises(Exception, match="no"):
            await camera.request("detector", b"x", id="bad")
    await camera.keep.set("state", b"x")


async def test_defaults_are_10_60_60_and_3600_seconds(k: Kizuna) -> None:
    await write_one_of_each(k)

    req, res, err = "camera/req/detector.good", "camera/res/detector.good", "camera/err/detector.bad"
    await lives_s(k, {req: 10, res: 60, err: 60, "camera/keep/state": 3600})


@pytest.mark.parametrize("by", ["settings", "unit"])
async def test_defaults_can_be_overridden_for_the_settings_and_for_the_unit(settings: Settings, by: str) -> None:
    given: dict[str, Any] = {"request_s": 20.5, "response_s": 30.5, "error_s": 40.5, "keep_s": 50.5}
    if by == "settings":
        settings = msgspec.structs.replace(settings, units=UnitsSettings(**given))
    async with connect(settings) as k:
        await write_one_of_each(k, **(given if by == "unit" else {}))

        req, res, err = "camera/req/detector.good", "camera/res/detector.good", "camera/err/detector.bad"
        await lives_s(k, {req: 20.5, res: 30.5, err: 40.5, "camera/keep/state": 50.5})


async def test_and_for_each_call(k: Kizuna) -> None:
    camera = k.unit("camera", request_s=2, response_s=2, error_s=2, keep_s=2)
    for status in ("req", "res", "err", "keep"):
        await camera.send(status, "42", b"x", ttl_s=100.5)
        await lives_s(k, {f"camera/{status}/42": 100.5})
    async with k.unit("detector").serving(echo):
        await camera.request("detector", b"x", id="1", ttl_s=200.5)
    await lives_s(k, {"camera/req/detector.1": 200.5})


# -- the codec -----------------------------------------------------------------------------------------------------

VALUE = {"boxes": [1, 2, 3], "name": "寿司", "none": None}


@pytest.mark.parametrize(
    ("codec", "value", "raw"),
    [
        (RAW, EVERYTHING, EVERYTHING),
        (TEXT, "寿司\0", "寿司\0".encode()),
        (JSON, VALUE, msgspec.json.encode(VALUE)),
        (MSGPACK, VALUE, msgspec.msgpack.encode(VALUE)),
    ],
    ids=lambda value: value.name if isinstance(value, Codec) else "",
)
async def test_a_codec_adds_nothing_to_the_value(k: Kizuna, codec: Codec, value: Any, raw: bytes) -> None:
    camera, seen = k.unit("camera", codec=codec), []

    async def note(data: Any, request: Any) -> Any:
        seen.append((data, request.data, request.raw))
        return data

    async with k.unit("detector", codec=codec).serving(note):
        assert await camera.request("detector", value, id="1") == value
    await camera.send("keep", "state", value)

    assert seen == [(value, value, raw)]
    for path in ("camera/req/detector.1", "camera/res/detector.1", "camera/keep/state"):
        assert await value_of(k, path) == raw


async def test_who_gets_a_reply_in_another_format_is_told_so_with_the_bytes(k: Kizuna) -> None:
    async with k.unit("detector").serving(echo):
        for codec, raw in {TEXT: b"\xff", JSON: b"{", MSGPACK: b"\xc1"}.items():
            raw_camera = k.unit("camera", codec=codec._replace(encode=bytes))
            with pytest.raises(Undecodable) as refused:
                await raw_camera.request("detector", raw)
            assert refused.value.raw == raw


async def test_who_sends_a_request_in_another_format_is_told_so_and_the_handler_is_not_called(k: Kizuna) -> None:
    called: list[Any] = []
    async with k.unit("detector", codec=JSON).serving(called.append):
        with pytest.raises(Exception, match=r"Undecodable: b'\{oops' is not the JSON it should be"):
            await k.unit("camera").request("detector", b"{oops")
    assert called == []


async def test_what_the_codec_has_no_word_for_is_refused_before_anything_is_sent(k: Kizuna) -> None:
    with pytest.raises(TypeError, match="choose another codec"):
        await k.unit("camera").send("keep", "42", {"a": 1})
    with pytest.raises(TypeError):
        await k.unit("camera", codec=JSON).request("detector", object())
    assert await number_of_keys(k) == 0


# -- too large -----------------------------------------------------------------------------------------------------


async def test_an_oversize_value_is_refused_before_it_is_sent(settings: Settings) -> None:
    async with connect(msgspec.structs.replace(settings, units=UnitsSettings(largest_bytes=1000))) as k:
        camera = k.unit("camera")
        for refused in (
            camera.request("detector", bytes(1001)),
            camera.send("keep", "42", bytes(1001)),
            camera.send_raw("keep", "42", "ä" * 501),
            camera.keep.set("42", bytes(1001)),
        ):
            with pytest.raises(TooLarge, match=r"1,00\d bytes, and 1,000 are the most"):
                await refused
        assert await number_of_keys(k) == 0
        await camera.send("keep", "42", bytes(1000))
        assert await value_of(k, "camera/keep/42") == bytes(1000)


async def test_an_oversize_reply_becomes_an_error_that_says_so(settings: Settings) -> None:
    async def enlarge(data: bytes) -> bytes:
        return data * 11

    async with (
        connect(msgspec.structs.replace(settings, units=UnitsSettings(largest_bytes=1000))) as k,
        k.unit("detector").serving(enlarge),
    ):
        with pytest.raises(Exception, match="TooLarge: the reply has 1,100 bytes, and 1,000 are the most"):
            await k.unit("camera").request("detector", bytes(100))
        assert await k.unit("camera").request("detector", bytes(90)) == bytes(990)


async def test_units_of_one_name_in_a_process_wait_together_however_many_are_made(k: Kizuna) -> None:
    async with k.unit("detector").serving(echo):
        for number in range(50):
            assert await k.unit("camera").request("detector", b"%d" % number) == b"%d" % number

    # Two for replies and errors, two for the short cut: as many as one unit has.
    assert sum(b"camera" in subscription.name for subscription in k.store.events._subscriptions) == 4


async def test_units_that_ask_nothing_are_not_remembered(k: Kizuna) -> None:
    for number in range(100):
        await k.unit(f"visitor-{number}").send("keep", "seen", b"1", ttl_s=1)

    assert k.units._requests == {}


async def test_who_was_closed_says_so_also_to_a_unit_that_never_asked_before(settings: Settings) -> None:
    async with connect(settings) as k:
        camera = k.unit("camera")
    with pytest.raises(Unreachable, match="closed"):
        await camera.request("detector")

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kizuna.codecs import JSON, MSGPACK, RAW, TEXT, Codec, json_of, msgpack_of
from kizuna.errors import Undecodable

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)  # fmt: skip


@dataclass
class Order:
    item: str
    count: int


@given(value=plain)
@pytest.mark.parametrize("codec", [JSON, MSGPACK], ids=lambda codec: codec.name)
def test_what_is_encoded_can_be_decoded(codec: Codec, value: Any) -> None:
    assert codec.decode(codec.encode(value)) == value


@given(text=st.text())
def test_text_is_utf_8_as_it_stands(text: str) -> None:
    assert TEXT.encode(text) == RAW.encode(text) == text.encode()
    assert TEXT.decode(text.encode()) == text


@given(raw=st.binary())
def test_raw_bytes_stay_what_they_are(raw: bytes) -> None:
    assert RAW.decode(RAW.encode(raw)) == raw
    assert RAW.encode(bytearray(raw)) == RAW.encode(memoryview(raw)) == raw


@given(raw=st.binary())
@pytest.mark.parametrize("codec", [TEXT, JSON, MSGPACK, json_of(Order), msgpack_of(Order)], ids=lambda codec: codec[0])
def test_bytes_of_any_kind_are_decoded_or_refused(codec: Codec, raw: bytes) -> None:
    refusal = refusal_of(codec, raw)

    assert refusal is None or refusal.raw == raw


def refusal_of(codec: Codec, raw: bytes) -> Undecodable | None:
    try:
        codec.decode(raw)
    except Undecodable as refused:
        return refused
    return None


@pytest.mark.parametrize("make", [json_of, msgpack_of])
def test_a_type_is_held_to(make: Any) -> None:
    codec = make(Order)

    assert codec.decode(codec.encode(Order("tea", 2))) == Order("tea", 2)
    with pytest.raises(Undecodable, match=r"Expected `int`, got `str` - at `\$\.count`"):
        codec.decode(codec.encode({"item": "tea", "count": "two"}))


def test_what_cannot_be_decoded_is_named_and_shown() -> None:
    with pytest.raises(Undecodable) as refused:
        JSON.decode(b'{"open": ' + b"1" * 100)

    assert str(refused.value).startswith(
        "b'{\"open\": 1111111111111111111111111111111'… is not the JSON it should be: "
    )
    assert refused.value.format == "JSON"


@pytest.mark.parametrize(("codec", "value"), [(JSON, object()), (MSGPACK, object()), (RAW, 3), (TEXT, {"a": 1})])
def test_what_has_no_form_in_a_codec_is_a_type_error(codec: Codec, value: Any) -> None:
    with pytest.raises(TypeError):
        codec.encode(value)

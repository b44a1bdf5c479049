from __future__ import annotations

import base64
import json
import logging
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from kizuna.app import connect
from kizuna.errors import CannotOpen, CannotSeal, SettingsError, WrongValue
from kizuna.memory.item import SEALED_BEGINS
from kizuna.memory.sealing import KeyRing, bound_to, refuse_what_looks_sealed
from kizuna.settings import MemorySettings, Secret, Settings, load_settings

ROOT, ITEM = "harca", "note-1"
OLD, NEW = bytes(range(32)), bytes(range(100, 132))
RING = KeyRing({"new": NEW, "old": OLD})
PLAIN = '{"text":"極秘"}'.encode()


def in_base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def ring_of(text: str) -> KeyRing:
    ring = KeyRing.from_settings(Settings(memory=MemorySettings(seal_keys=Secret(text))))
    assert ring is not None
    return ring


def changed(raw: bytes, **data: Any) -> bytes:
    """The same with other values in `data`; None removes one."""
    content = json.loads(raw)
    content["data"] = {name: value for name, value in (content["data"] | data).items() if value is not None}
    return json.dumps(content, separators=(",", ":")).encode()


def sealed_as_others_do(plain: bytes, key: bytes, iv: bytes = b"0123456789abcdef") -> bytes:
    sealed = AESGCM(key).encrypt(iv, plain, None)
    data = {"encrypted": in_base64(sealed[:-16]), "iv": in_base64(iv), "authTag": in_base64(sealed[-16:])}
    return json.dumps({"_encrypted": True, "data": data}, separators=(",", ":")).encode()


def why_not(raw: bytes, ring: KeyRing = RING, root: str = ROOT, item: str = ITEM) -> str:
    with pytest.raises(CannotOpen) as refused:
        ring.open(root, item, raw)
    assert refused.value.item == item
    return refused.value.reason


# what is sealed opens again, in its place only


@given(root=st.text(), item=st.text(), plain=st.binary())
def test_what_is_sealed_opens_again(root: str, item: str, plain: bytes) -> None:
    assert RING.open(root, item, RING.seal(root, item, plain)) == plain


texts = st.text(max_size=4)


@given(one=st.tuples(texts, texts, texts), other=st.tuples(texts, texts, texts))
def test_no_two_places_are_bound_to_the_same_bytes(one: tuple[str, str, str], other: tuple[str, str, str]) -> None:
    assert (bound_to(*one) == bound_to(*other)) == (one == other)


def test_the_bytes_that_a_content_is_bound_to() -> None:
    expected = "0000000d 6b697a756e61206d656d6f7279 00000005 6861726361 00000004 e7b5b531 00000002 6b31"
    assert bound_to("harca", "絵1", "k1") == bytes.fromhex(expected)


def test_the_form_is_the_one_that_others_know_with_the_name_of_the_key() -> None:
    raw = RING.seal(ROOT, ITEM, PLAIN)

    assert raw.startswith(SEALED_BEGINS)
    content = json.loads(raw)
    assert content == {"_encrypted": True, "data": content["data"]}
    data = content["data"]
    assert set(data) == {"encrypted", "iv", "authTag", "kid", "v"}
    assert (data["kid"], data["v"]) == ("new", 1)
    lengths = [len(base64.b64decode(data[name])) for name in ("encrypted", "iv", "authTag")]
    assert lengths == [len(PLAIN), 12, 16]


def test_nothing_of_the_content_is_seen_and_no_two_sealings_are_alike() -> None:
    raws = {RING.seal(ROOT, ITEM, PLAIN) for _ in range(100)}

    assert len(raws) == 100
    assert not any("極秘".encode() in base64.b64decode(json.loads(raw)["data"]["encrypted"]) for raw in raws)


def test_a_ciphertext_copied_to_another_item_or_root_does_not_open() -> None:
    raw = RING.seal(ROOT, ITEM, PLAIN)

    expected = "it was changed, or sealed for another item, or with another key of this name"
    assert why_not(raw, item="note-2") == expected
    assert why_not(raw, root="other") == expected


@pytest.mark.parametrize("part", ["encrypted", "iv", "authTag"])
def test_every_bit_counts(part: str) -> None:
    raw = RING.seal(ROOT, ITEM, b"12")
    value = bytearray(base64.b64decode(json.loads(raw)["data"][part]))
    for bit in range(len(value) * 8):
        flipped = bytearray(value)
        flipped[bit // 8] ^= 1 << bit % 8
        assert why_not(changed(raw, **{part: in_base64(bytes(flipped))})).startswith("it was changed")


def test_the_name_of_the_key_cannot_be_changed_or_taken_away() -> None:
    same = KeyRing({"new": NEW, "twin": NEW})
    raw = same.seal(ROOT, ITEM, PLAIN)

    assert why_not(changed(raw, kid="twin"), ring=same).startswith("it was changed")
    assert why_not(changed(raw, kid=None, v=None)) == (
        "it names no key, and its IV is not one of those that stand without"
    )
    # Not even where the length of the IV is as others have it.
    bound = AESGCM(NEW).encrypt(b"0123456789abcdef", PLAIN, bound_to(ROOT, ITEM, "new"))
    iv, parts = in_base64(b"0123456789abcdef"), {"encrypted": in_base64(bound[:-16]), "authTag": in_base64(bound[-16:])}
    assert why_not(changed(raw, **parts, iv=iv, kid=None, v=None)) == "it names no key, and none of ours opens it"


def test_what_others_sealed_does_not_open_as_if_it_were_bound() -> None:
    raw = changed(sealed_as_others_do(PLAIN, NEW, iv=b"0123456789ab"), kid="new", v=1)

    assert why_not(raw).startswith("it was changed")


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b"", "it is not in the form that sealed contents have"),
        (b'{"_encrypted":true', "it is not in the form that sealed contents have"),
        (b'{"_encrypted":true}', "it is not in the form that sealed contents have"),
        (b'{"_encrypted":true,"data":{"encrypted":1}}', "it is not in the form that sealed contents have"),
        (b'{"_encrypted":true,"data":\xff}', "it is not in the form that sealed contents have"),
        (changed(RING.seal(ROOT, ITEM, PLAIN), iv="*"), "a part of it is not base64"),
        (changed(RING.seal(ROOT, ITEM, PLAIN), iv="é"), "a part of it is not base64"),
        (changed(RING.seal(ROOT, ITEM, PLAIN), authTag="AAAA"), "its authTag has 3 bytes, and not 16"),
        (
            changed(RING.seal(ROOT, ITEM, PLAIN), v=2),
            "it is in a format that a newer kizuna may know, and this one does not",
        ),
        (
            changed(RING.seal(ROOT, ITEM, PLAIN), kid="lost"),
            "it was sealed with the key 'lost', which is not among ours",
        ),
    ],
)
def test_what_cannot_be_opened_says_why(raw: bytes, reason: str) -> None:
    assert why_not(raw) == reason


@given(raw=st.binary())
def test_any_bytes_are_refused_with_a_sentence(raw: bytes) -> None:
    assert why_not(SEALED_BEGINS + raw)


# changing keys


def test_the_first_key_seals_and_all_open() -> None:
    before, after = KeyRing({"old": OLD}), KeyRing({"new": NEW, "old": OLD})
    by_old, by_new = before.seal(ROOT, ITEM, PLAIN), after.seal(ROOT, ITEM, PLAIN)

    assert after.open(ROOT, ITEM, by_old) == after.open(ROOT, ITEM, by_new) == PLAIN
    assert [after.is_current(raw) for raw in (by_old, by_new)] == [False, True]
    assert why_not(by_new, ring=before) == "it was sealed with the key 'new', which is not among ours"
    assert why_not(by_old, ring=KeyRing({"old": NEW})).endswith("or with another key of this name")


def test_what_others_sealed_opens_with_any_key_and_is_not_current() -> None:
    for key in (OLD, NEW):
        raw = sealed_as_others_do(PLAIN, key)
        assert RING.open(ROOT, ITEM, raw) == PLAIN
        assert not RING.is_current(raw)
    assert why_not(sealed_as_others_do(PLAIN, bytes(32))) == "it names no key, and none of ours opens it"
    assert not RING.is_current(b"{}")


# others


NODE = shutil.which("node")
SEALED_BY_NODE = """
const crypto = require('crypto');
const key = Buffer.from(process.argv[1], 'base64');
function seal(data) {
  const iv = crypto.randomBytes(16);
  const cipher = crypto.createCipheriv('aes-256-gcm', key, iv);
  let encrypted = cipher.update(JSON.stringify(data), 'utf8', 'base64');
  encrypted += cipher.final('base64');
  return {encrypted, iv: iv.toString('base64'), authTag: cipher.getAuthTag().toString('base64')};
}
console.log(JSON.stringify({_encrypted: true, data: seal({text: '極秘', numbers: [1, 2.5], none: null})}));
"""
OPENED_BY_NODE = """
const crypto = require('crypto');
const key = Buffer.from(process.argv[1], 'base64');
const {data, bound} = JSON.parse(process.argv[2]);
const decipher = crypto.createDecipheriv('aes-256-gcm', key, Buffer.from(data.iv, 'base64'));
if (bound) decipher.setAAD(Buffer.from(bound, 'base64'));
decipher.setAuthTag(Buffer.from(data.authTag, 'base64'));
let decrypted = decipher.update(data.encrypted, 'base64', 'utf8');
decrypted += decipher.final('utf8');
console.log(JSON.stringify(JSON.parse(decrypted)));
"""


def node(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    if NODE is None:
        pytest.skip("there is no Node here, so nothing that JavaScript could open or seal with")
    line = [NODE, "-e", program, *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)


def test_what_javascript_sealed_opens() -> None:
    raw = node(SEALED_BY_NODE, in_base64(OLD)).stdout.strip().encode()

    assert raw.startswith(SEALED_BEGINS)
    assert json.loads(RING.open(ROOT, ITEM, raw)) == {"text": "極秘", "numbers": [1, 2.5], "none": None}


def test_what_we_seal_opens_in_javascript_for_those_who_know_what_it_is_bound_to() -> None:
    data = json.loads(RING.seal(ROOT, ITEM, PLAIN))["data"]
    bound = in_base64(bound_to(ROOT, ITEM, "new"))

    assert node(OPENED_BY_NODE, in_base64(NEW), json.dumps({"data": data, "bound": bound})).stdout.strip().encode() == (
        PLAIN
    )
    refused = node(OPENED_BY_NODE, in_base64(NEW), json.dumps({"data": data}))
    assert refused.returncode == 1
    assert "unable to authenticate data" in refused.stderr


# keys from settings


def test_without_keys_there_is_no_ring() -> None:
    assert KeyRing.from_settings(Settings()) is None


@pytest.mark.parametrize("between", [" ", "\n", "\r\n", "\n\n\t"])
def test_keys_are_separated_by_blanks_or_lines(between: str) -> None:
    assert ring_of(f"b:{in_base64(NEW)}{between}a:{in_base64(OLD)}{between}").names == ("b", "a")


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_keys_come_from_a_file_whoever_makes_the_settings(tmp_path: Path, end: str) -> None:
    file = tmp_path / "keys"
    file.write_bytes(f"new:{in_base64(NEW)}{end}".encode())
    loaded = load_settings({"memory.seal_keys_file": str(file)}, environ={}, cwd=tmp_path)
    in_code = Settings(memory=MemorySettings(seal_keys_file=str(file)))

    for settings in (loaded, in_code):
        ring = KeyRing.from_settings(settings)
        assert ring is not None
        assert ring.open(ROOT, ITEM, RING.seal(ROOT, ITEM, PLAIN)) == PLAIN


def test_a_file_that_cannot_be_read_or_is_empty_is_told(tmp_path: Path) -> None:
    def problem(file: Path) -> str:
        with pytest.raises(SettingsError) as refused:
            KeyRing.from_settings(Settings(memory=MemorySettings(seal_keys_file=str(file))))
        return str(refused.value)

    (tmp_path / "empty").write_text("\n")
    (tmp_path / "binary").write_bytes(OLD[:1] + b"\xff" + OLD)
    gone, empty, binary = (tmp_path / name for name in ("gone", "empty", "binary"))
    assert problem(gone) == f"memory.seal_keys_file: {gone} cannot be read: No such file or directory"
    assert problem(binary) == f"memory.seal_keys_file: {binary} cannot be read: it is not UTF-8"
    hint = "holds no key; write name:key there, `openssl rand -base64 32` makes a key"
    assert problem(empty) == f"the file of memory.seal_keys_file, {empty}, {hint}"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            in_base64(NEW),
            "entry 1 of memory.seal_keys is not name:key, with at most 32 of A-Z a-z 0-9 . _ - as the name",
        ),
        (f":{in_base64(NEW)}", "entry 1 of memory.seal_keys is not name:key"),
        (f"{in_base64(NEW)}:name", "entry 1 of memory.seal_keys is not name:key"),
        (
            f"a:{in_base64(NEW)} b:{in_base64(NEW)[:-2]}!",
            "entry 2 of memory.seal_keys, 'b', is not base64; `openssl rand -base64 32` makes a key",
        ),
        ("a:é", "entry 1 of memory.seal_keys, 'a', is not base64"),
        (f"a:{in_base64(NEW[:16])}", "entry 1 of memory.seal_keys, 'a', has 16 bytes, and a key has 32"),
        ("a:", "entry 1 of memory.seal_keys, 'a', has 0 bytes, and a key has 32"),
        (
            f"a:{in_base64(NEW)} a:{in_base64(OLD)}",
            "memory.seal_keys has two keys called 'a'; give each a name of its own",
        ),
    ],
)
def test_wrong_keys_are_told_without_being_shown(text: str, problem: str) -> None:
    with pytest.raises(SettingsError) as refused:
        ring_of(text)

    assert str(refused.value).startswith(problem)
    assert in_base64(NEW)[:8] not in str(refused.value)
    assert refused.value.__cause__ is None


# nothing secret is seen


def test_a_ring_shows_names_only() -> None:
    settings = Settings(memory=MemorySettings(seal_keys=Secret(f"a:{in_base64(NEW)}")))

    assert repr(RING) == str(RING) == "<KeyRing of new, old>"
    assert in_base64(NEW) not in repr(settings)


def test_errors_and_logs_hold_neither_keys_nor_contents(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    raw = RING.seal(ROOT, ITEM, PLAIN)
    told = b""
    for wrong in (raw[:-30], changed(raw, kid="x"), changed(raw, encrypted="AAAA"), changed(raw, kid=None)):
        with pytest.raises(CannotOpen) as refused:
            RING.open(ROOT, ITEM, wrong)
        told += pickle.dumps(refused.value) + str(refused.value).encode()

    ciphertext = json.loads(raw)["data"]["encrypted"].encode()
    assert not any(secret in told for secret in (NEW, OLD, in_base64(NEW).encode(), PLAIN, ciphertext))
    assert caplog.text == ""


@pytest.mark.parametrize("value", [{"_encrypted": True}, {"a": 1, "_encrypted": True, "data": {}}])
def test_a_content_that_looks_sealed_is_refused(value: Any) -> None:
    with pytest.raises(WrongValue, match=r"^content cannot be a dictionary whose _encrypted is true; expected another"):
        refuse_what_looks_sealed(value)


@pytest.mark.parametrize("value", [None, 1, "_encrypted", [], ["_encrypted"], {}, {"_encrypted": False}, {"a": {}}])
async def test_other_contents_are_taken_as_they_are(value: Any, settings: Settings) -> None:
    async with connect(settings) as k:
        item = await k.memory.create("note", value)
        read = await k.memory.get(item.id)

    assert read is not None
    assert (read.is_sealed, read.content) == (False, value)


# what is needed for it


@pytest.mark.parametrize(
    "use", ["seal('harca', 'item', b'1')", f"open('harca', 'item', {RING.seal(ROOT, ITEM, b'1')!r})"]
)
def test_the_package_is_loaded_when_something_is_sealed_or_opened_and_its_absence_is_told(use: str) -> None:
    program = f"""
import sys
sys.modules["cryptography.hazmat.primitives.ciphers.aead"] = None  # as if it were not installed
from kizuna.memory.sealing import KeyRing
ring = KeyRing.parse("new:{in_base64(NEW)}", "here")
assert "cryptography" not in sys.modules
ring.{use}
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)

    expected = CannotSeal(
        "the package cryptography is not installed", "install it with `pip install 'kizuna[sealing]'`"
    )
    assert ended.stderr.splitlines()[-1] == f"kizuna.errors.CannotSeal: {expected}"

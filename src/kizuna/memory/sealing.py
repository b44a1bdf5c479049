"""Contents that the server never sees: AES-256-GCM, with keys that have names and can be changed.

What is stored is JSON, so that indexes, backups and other programs treat it as any content:

    {"_encrypted":true,"data":{"encrypted":…,"iv":…,"authTag":…,"kid":…,"v":1}}

`encrypted` is the ciphertext of the content's JSON, `iv` a random nonce of 12 bytes, `authTag` the tag of 16, each in
base64; `kid` names the key. The additional authenticated data binds it to its place: the four texts "kizuna memory",
root, item id and kid, each in UTF-8 behind its length as a big-endian u32. Without that, a ciphertext copied from one
item to another would open there.

Others write the same without `kid` and `v`, with an IV of 16 bytes and bound to nothing. That is opened as well, by
whichever key fits; but what has lost its `kid` on the way was bound, and does not open.
"""

from __future__ import annotations

import os
import re
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
from msgspec import Struct

from kizuna.configuration import read_text
from kizuna.errors import CannotOpen, CannotSeal, SettingsError, WrongValue

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    from kizuna.settings import Settings

KEY_BYTES = 32
NONCE_BYTES = 12
TAG_BYTES = 16
PLAIN_IV_BYTES = 16
FORMAT = 1

_PURPOSE = "kizuna memory"
# Base64 and names of keys hold nothing that JSON would escape.
_TEXT = b'{"_encrypted":true,"data":{"encrypted":"%b","iv":"%b","authTag":"%b","kid":"%b","v":%d}}'
# Shorter than a key in base64, so that a key that stands in the place of its name is not taken, and shown, as one.
_KEY_NAME = re.compile(r"[A-Za-z0-9._-]{1,32}")
_MAKE_ONE = "`openssl rand -base64 32` makes a key"


class SealedData(Struct, frozen=True, rename={"auth_tag": "authTag"}):
    encrypted: str
    iv: str
    auth_tag: str
    kid: str | None = None
    v: int | None = None


class SealedContent(Struct, frozen=True):
    data: SealedData


class KeyRing:
    """Keys by their names: the first seals, all open. Shows their names, and never the keys."""

    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = dict(keys)
        self.first = next(iter(self._keys))
        """The name of the key that seals."""

    @classmethod
    def from_settings(cls, settings: Settings) -> Self | None:
        """None if there are no keys. SettingsError says what is wrong with them."""
        text: str = settings.memory.seal_keys
        origin = "memory.seal_keys"
        if file := settings.memory.seal_keys_file:
            # Whoever loaded the settings has read it already; who made them in code has not.
            text, origin = text or _text_of(file), f"the file of memory.seal_keys_file, {file},"
        return cls.parse(text, origin) if text.strip() or file else None

    @classmethod
    def parse(cls, text: str, origin: str) -> Self:
        """Of `name:key`, with blanks or line ends between them."""
        keys: dict[str, bytes] = {}
        for number, entry in enumerate(text.split(), 1):
            name, key = _read_entry(entry, f"entry {number} of {origin}")
            if name in keys:
                raise SettingsError(f"{origin} has two keys called {name!r}; give each a name of its own")
            keys[name] = key
        if not keys:
            raise SettingsError(f"{origin} holds no key; write name:key there, {_MAKE_ONE}")
        return cls(keys)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._keys)

    def seal(self, root: str, item_id: str, plain: bytes) -> bytes:
        """The JSON text to be stored. `root` is the one that is configured, not that of a shard: so an item can move.

        CannotSeal if what is needed for it is not installed."""
        kid, nonce = self.first, os.urandom(NONCE_BYTES)
        sealed = self._ciphers[kid].encrypt(nonce, plain, bound_to(root, item_id, kid))
        encrypted, tag = sealed[:-TAG_BYTES], sealed[-TAG_BYTES:]
        return _TEXT % (b64encode(encrypted), b64encode(nonce), b64encode(tag), kid.encode(), FORMAT)

    def open(self, root: str, item_id: str, raw: bytes) -> bytes:
        """What was sealed. CannotOpen if it was changed, bound to another place, or sealed with none of our keys;
        CannotSeal if what is needed for it is not installed."""
        data = _data_of(item_id, raw)
        nonce, sealed = _bytes_of(item_id, data)
        if data.kid is None:
            return self._open_plain(item_id, nonce, sealed)
        if data.v != FORMAT or len(nonce) != NONCE_BYTES:
            raise CannotOpen(item_id, "it is in a format that a newer kizuna may know, and this one does not")
        if data.kid not in self._keys:
            raise CannotOpen(item_id, f"it was sealed with the key {data.kid[:32]!r}, which is not among ours")
        plain = self._try(data.kid, nonce, sealed, bound_to(root, item_id, data.kid))
        if plain is None:
            raise CannotOpen(item_id, "it was changed, or sealed for another item, or with another key of this name")
        return plain

    def is_current(self, raw: bytes) -> bool:
        """Whether it is sealed with the first key, as we seal. False also for what is no sealed content at all."""
        try:
            data = _data_of("", raw)
        except CannotOpen:
            return False
        return data.kid == self.first and data.v == FORMAT

    def _open_plain(self, item_id: str, nonce: bytes, sealed: bytes) -> bytes:
        if len(nonce) != PLAIN_IV_BYTES:
            raise CannotOpen(item_id, "it names no key, and its IV is not one of those that stand without")
        for kid in self._keys:
            plain = self._try(kid, nonce, sealed, None)
            if plain is not None:
                return plain
        raise CannotOpen(item_id, "it names no key, and none of ours opens it")

    def _try(self, kid: str, nonce: bytes, sealed: bytes, bound: bytes | None) -> bytes | None:
        cipher = self._ciphers[kid]
        from cryptography.exceptions import InvalidTag

        try:
            return cipher.decrypt(nonce, sealed, bound)
        except InvalidTag:
            return None

    @cached_property
    def _ciphers(self) -> dict[str, AESGCM]:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as error:
            hint = "install it with `pip install 'kizuna[sealing]'`"
            raise CannotSeal("the package cryptography is not installed", hint) from error
        return {name: AESGCM(key) for name, key in self._keys.items()}

    def __repr__(self) -> str:
        return f"<KeyRing of {', '.join(self._keys)}>"


def bound_to(root: str, item_id: str, kid: str) -> bytes:
    """The additional authenticated data: no two places have the same."""
    texts = (text.encode(errors="surrogatepass") for text in (_PURPOSE, root, item_id, kid))
    return b"".join(len(text).to_bytes(4, "big") + text for text in texts)


def refuse_what_looks_sealed(value: Any) -> None:
    """WrongValue for a content of the caller's own that would be taken for a sealed one when it is read."""
    if isinstance(value, Mapping) and value.get("_encrypted") is True:
        raise WrongValue("content", "a dictionary whose _encrypted is true", "another name: that one marks sealed ones")


def _read_entry(entry: str, where: str) -> tuple[str, bytes]:
    """The name and the key. What stands there is never quoted but for a name that is one."""
    name, colon, text = entry.partition(":")
    if not colon or not _KEY_NAME.fullmatch(name):
        raise SettingsError(f"{where} is not name:key, with at most 32 of A-Z a-z 0-9 . _ - as the name")
    try:
        key = b64decode(text, validate=True)
    except (NotBase64, ValueError):
        # Not chained: a traceback must not show what was read.
        raise SettingsError(f"{where}, {name!r}, is not base64; {_MAKE_ONE}") from None
    if len(key) != KEY_BYTES:
        raise SettingsError(f"{where}, {name!r}, has {len(key)} bytes, and a key has {KEY_BYTES}; {_MAKE_ONE}")
    return name, key


def _text_of(file: str) -> str:
    try:
        return read_text(Path(file).expanduser())
    except SettingsError as error:
        raise SettingsError(f"memory.seal_keys_file: {error}") from error


def _data_of(item_id: str, raw: bytes) -> SealedData:
    try:
        return msgspec.json.decode(raw, type=SealedContent).data
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise CannotOpen(item_id, "it is not in the form that sealed contents have") from None


def _bytes_of(item_id: str, data: SealedData) -> tuple[bytes, bytes]:
    """The nonce, and the ciphertext with the tag behind it."""
    try:
        nonce, encrypted, tag = (b64decode(text, validate=True) for text in (data.iv, data.encrypted, data.auth_tag))
    except (NotBase64, ValueError):
        raise CannotOpen(item_id, "a part of it is not base64") from None
    # A shorter tag would be easier to guess.
    if len(tag) != TAG_BYTES:
        raise CannotOpen(item_id, f"its authTag has {len(tag)} bytes, and not {TAG_BYTES}")
    return nonce, encrypted + tag

"""Keys that go to another root than the one they came from. Does no I/O."""

from __future__ import annotations

from collections.abc import Mapping

_SEPARATORS = (b":", b"/")


class Renaming:
    """`{"poppo": "copy"}` makes `poppo:queue:high` to `copy:queue:high`, and `{poppo:3}:queue:high` to
    `{copy:3}:queue:high`: shards keep their number. Keys below other roots keep their names."""

    def __init__(self, roots: Mapping[str, str]) -> None:
        self._beginnings = [
            (before + old.encode() + separator, before + new.encode() + separator)
            for old, new in roots.items()
            for before in (b"", b"{")
            for separator in _SEPARATORS
        ]

    def __call__(self, key: bytes) -> bytes:
        for old, new in self._beginnings:
            if key.startswith(old):
                return new + key[len(old) :]
        return key

from __future__ import annotations

import re

from kizuna.memory.item import FIELDS
from kizuna.memory.scripts import script

READS_ALL = re.compile(r'HMGET", (?:item|item_of \.\. id), ((?:"\w+",?\s*)+)\)')


def test_what_scripts_return_of_an_item_is_what_is_read_of_it() -> None:
    """Its values are known by their order alone."""
    for name in ("change_items", "touch_items", "list_items", "rewrite_items"):
        listed = [re.findall(r'"(\w+)"', found) for found in READS_ALL.findall(script(name).source)]
        whole = [names for names in listed if len(names) >= len(FIELDS)]
        assert whole, name
        assert all(names[: len(FIELDS)] == list(FIELDS) for names in whole), name

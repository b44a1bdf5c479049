"""The Huffman code of HPACK (RFC 7541), the reading half: a header may be sent in it. Does no I/O."""

from __future__ import annotations

from functools import cache

from kizuna.match.serving.http2.faults import COMPRESSION_ERROR, Fault

# How many bits each byte has. The code is canonical: counting up, from the shortest to the longest, gives the bits.
_LENGTHS = bytes.fromhex(
    "0d171c1c 1c1c1c1c 1c181e1c 1c1e1c1c 1c1c1c1c 1c1c1e1c 1c1c1c1c 1c1c1c1c"
    "060a0a0c 0d06080b 0a0a080b 08060606 05050506 06060606 06060708 0f060c0a"
    "0d060707 07070707 07070707 07070707 07070707 07070707 0807080d 130d0e06"
    "0f050605 06050606 06050707 06060605 06070605 05060707 0707070f 0b0e0d1c"
    "14161414 16161617 16171717 17171817 18181617 18171717 17151617 16171718"
    "16151416 16171715 17161618 15161717 15151615 17161717 14161616 17161617"
    "1a1a1413 16171619 1a1a1a1b 1b1a1819 13151a1b 1b1a1b18 15151a1a 1c1b1b1b"
    "14181415 16151517 16161919 18181a17 1a1b1a1a 1b1b1b1b 1b1c1b1b 1b1b1b1a"
)
_PADDING_AT_MOST = 7

# By state and four bits: the next state, and what was completed on the way. State 0 is between two bytes; there is none
# after a code that there is not.
_Steps = list[list[tuple[int, bytes]]]


def decode(data: bytes) -> bytes:
    """Fault for what is no such code, or does not end as it should: with ones, fewer than eight."""
    steps, may_end = _table()
    state, found = 0, []
    try:
        for byte in data:
            state, first = steps[state][byte >> 4]
            state, second = steps[state][byte & 15]
            if first or second:
                found.append(first + second)
    except IndexError:
        raise Fault(COMPRESSION_ERROR, "a header has no such code") from None
    if state not in may_end:
        raise Fault(COMPRESSION_ERROR, "a header ends within a code")
    return b"".join(found)


@cache
def _table() -> tuple[_Steps, frozenset[int]]:
    """Made when it is first needed: some milliseconds."""
    tree = _tree()
    steps = [[_walk(tree, node, bits) for bits in range(16)] for node in range(len(tree))]
    return steps, frozenset(_of_ones_only(tree))


def _tree() -> list[list[int | None]]:
    """Nodes with what follows on 0 and on 1: another node, or, below zero, a byte. The code of the end, thirty ones, is
    in no tree: nobody may send it."""
    tree: list[list[int | None]] = [[None, None]]
    code, bits = -1, _LENGTHS[ord("0")]
    for byte in sorted(range(256), key=lambda byte: (_LENGTHS[byte], byte)):
        code, bits = (code + 1) << (_LENGTHS[byte] - bits), _LENGTHS[byte]
        node = 0
        for place in range(bits - 1, 0, -1):
            node = _next(tree, node, code >> place & 1)
        tree[node][code & 1] = -1 - byte
    return tree


def _next(tree: list[list[int | None]], node: int, bit: int) -> int:
    found = tree[node][bit]
    if found is None:
        tree.append([None, None])
        found = tree[node][bit] = len(tree) - 1
    return found


def _walk(tree: list[list[int | None]], node: int, bits: int) -> tuple[int, bytes]:
    completed = b""
    for place in (3, 2, 1, 0):
        found = tree[node][bits >> place & 1]
        if found is None:
            return len(tree), b""
        node = max(found, 0)
        if found < 0:
            completed += bytes([-1 - found])
    return node, completed


def _of_ones_only(tree: list[list[int | None]]) -> list[int]:
    """Where the padding may end."""
    node: int | None = 0
    found = []
    for _ in range(_PADDING_AT_MOST + 1):
        if node is not None:
            found.append(node)
            node = tree[node][1]
    return found

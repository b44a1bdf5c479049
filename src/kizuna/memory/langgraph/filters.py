"""Which values a search wants: by filter, and by the words of a query."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from operator import ge, gt, le, lt
from typing import Any

_ORDERS: dict[str, Callable[[float, float], bool]] = {"$gt": gt, "$gte": ge, "$lt": lt, "$lte": le}


def passes(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Whether all fields are as wanted: equal, or as the operators say. ValueError for an unknown operator."""
    return all(_fits(value.get(name), condition) for name, condition in (wanted or {}).items())


def score_of(value: Mapping[str, Any], words: list[str]) -> float:
    """The part of the words that stand somewhere in the value, in small letters or large."""
    text = json.dumps(value, ensure_ascii=False).casefold()
    return sum(word in text for word in words) / len(words)


def words_of(query: str | None) -> list[str]:
    return (query or "").casefold().split()


def _fits(value: Any, condition: Any) -> bool:
    if isinstance(condition, Mapping):
        if any(name.startswith("$") for name in condition):
            return all(_holds(value, operator, operand) for operator, operand in condition.items())
        return isinstance(value, Mapping) and all(_fits(value.get(name), part) for name, part in condition.items())
    if isinstance(condition, list | tuple):
        same_length = isinstance(value, list | tuple) and len(value) == len(condition)
        return same_length and all(map(_fits, value, condition))
    return bool(value == condition)


def _holds(value: Any, operator: str, operand: Any) -> bool:
    if operator == "$eq":
        return bool(value == operand)
    if operator == "$ne":
        return bool(value != operand)
    if operator not in _ORDERS:
        raise ValueError(f"there is no operator {operator!r}; there are $eq, $ne, {', '.join(_ORDERS)}")
    try:
        return _ORDERS[operator](float(value), float(operand))
    except (TypeError, ValueError):  # what is no number, or is not there, is neither above nor below one
        return False

"""What is started at the head of a `with` block, and closed at its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Self


class Block(ABC):
    """Closed also if the start fails, since half of it may be running by then."""

    @abstractmethod
    def start(self) -> Self: ...

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *error: object) -> None:
        self.close()

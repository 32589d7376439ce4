"""A node of a YAML file: a value with its path and file, for error messages."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from anole.errors import SpecError, shown, suggestion


@dataclass(frozen=True)
class Node:
    """A value, its path, such as ``builds[1].preset``, and its file; the methods check the value and return it."""

    value: Any
    path: str
    file: str

    def error(self, problem: str) -> SpecError:
        """Return an error that names this path."""
        return SpecError(self.path, problem, self.file)

    def mapping(self, allowed: Collection[str] | None = None, required: Iterable[str] = ()) -> dict[str, Node]:
        """Return the entries of a mapping with text keys; any key may occur if `allowed` is None."""
        if not isinstance(self.value, dict):
            raise self.error(f"found {self._format_value()}; a mapping is expected")
        for key in self.value:
            if not isinstance(key, str):
                raise self.error(f"found the key {key!r}; keys must be text (quote it)")
            if allowed is not None and key not in allowed:
                raise self._child(key).error(f"is unknown; {suggestion(key, allowed)}")
        for key in required:
            if key not in self.value:
                raise self.error(f"has no `{key}`; it has {', '.join(self.value) or 'nothing'}")
        return {key: self._child(key) for key in self.value}

    def items(self) -> list[Node]:
        """Return the elements of a non-empty list."""
        if not isinstance(self.value, list) or not self.value:
            raise self.error(f"found {self._format_value()}; a list with at least one element is expected")
        return [Node(value, f"{self.path}[{index}]", self.file) for index, value in enumerate(self.value)]

    def text(self) -> str:
        """Return a non-empty text."""
        if not isinstance(self.value, str) or not self.value:
            raise self.error(f"found {self._format_value()}; a text is expected")
        return self.value

    def choice(self, allowed: Collection[str], what: str) -> str:
        """Return a text that is one of `allowed`; `what` ends the message "found 'x', which is not ..."."""
        text = self.text()
        if text not in allowed:
            raise self.error(f"found {text!r}, which is not {what}; {suggestion(text, allowed)}")
        return text

    def whole(self, least: int, most: int = 2**63 - 1) -> int:
        """Return an integer from `least` to `most`, inclusive."""
        if not isinstance(self.value, int) or isinstance(self.value, bool) or self.value < least:
            raise self.error(f"found {self._format_value()}; an integer of at least {least} is expected")
        if self.value > most:
            raise self.error(f"found {self._format_value()}; an integer of at most {most} is expected")
        return self.value

    def number(self, least: float, most: float) -> float:
        """Return a number from `least` to `most`, inclusive."""
        value = self.value
        # YAML reads 1e-4, which has no decimal point, as text.
        if isinstance(value, str):
            with suppress(ValueError):
                value = float(value)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
            raise self.error(f"found {self._format_value()}; a number from {least:g} to {most:g} is expected")
        return float(value)

    def flag(self) -> bool:
        """Return a boolean."""
        if not isinstance(self.value, bool):
            raise self.error(f"found {self._format_value()}; true or false is expected")
        return self.value

    def _child(self, key: str) -> Node:
        return Node(self.value[key], f"{self.path}.{key}" if self.path else key, self.file)

    def _format_value(self) -> str:
        return "nothing" if self.value is None else shown(self.value)

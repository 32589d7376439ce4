"""Read YAML files safely: every file yields plain values or raises a `SpecError`."""

from __future__ import annotations

import os
import stat
from collections.abc import Hashable
from pathlib import Path
from typing import Any, cast

import yaml

from anole.errors import SpecError

MAX_BYTES = 2**20
"""The maximum size of a file."""

MAX_NODES = 20_000
"""The maximum number of values; each alias counts as much as its target."""

MAX_DEPTH = 20
"""The maximum nesting of lists and mappings."""

MAX_CHARACTERS = 4096
"""The maximum length of a text or number."""

_TAG = "tag:yaml.org,2002:"
_TAGS = {_TAG + name for name in ("bool", "float", "int", "map", "merge", "null", "seq", "str")}
_NODE_CLASSES = {_TAG + "map": yaml.MappingNode, _TAG + "seq": yaml.SequenceNode}
_MERGE = _TAG + "merge"
_INT64_LIMIT = 2**63


def read_yaml(path: Path) -> object:
    """Return the content of a YAML file: mappings, lists, texts, numbers, booleans and None.

    Dates stay text. Integers have at most 64 bits.

    Raises:
        SpecError: the file is missing, unreadable, not plain YAML or empty, has a duplicate key, or exceeds a limit.
    """
    value = _parse(_read(path), path)
    if value is None:
        raise SpecError("", "is empty", str(path))
    return value


def _read(path: Path) -> str:
    try:
        with open(path, "rb", opener=_open_nonblocking) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise SpecError("", "is not a regular file", str(path))
            content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise SpecError("", f"there is no such file in {path.parent.resolve()}", str(path)) from error
    except OSError as error:
        raise SpecError("", f"cannot be read: {error.strerror}", str(path)) from error
    if len(content) > MAX_BYTES:
        raise SpecError("", f"is larger than {MAX_BYTES} bytes, the maximum", str(path))
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        position = _position(content[: error.start].decode())
        raise SpecError(
            position, f"cannot be read: found the byte 0x{content[error.start]:02x}, which is not UTF-8", str(path)
        ) from error


def _open_nonblocking(path: str, flags: int) -> int:
    """Open a file without waiting for the writer of a FIFO."""
    return os.open(path, flags | os.O_NONBLOCK)


def _parse(text: str, path: Path) -> object:
    loader: _Loader | None = None
    try:
        loader = _Loader(text)
        return loader.get_single_data()
    except yaml.reader.ReaderError as error:
        problem = f"is not YAML: found the character {chr(error.character)!r}"
        raise SpecError(_position(text[: error.position]), problem, str(path)) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise SpecError(position, error.problem or "is not YAML", str(path)) from error
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        # PyYAML does not catch the errors of `chr` and `int`, for example for "\UFFFFFFFF".
        position = "" if loader is None else f"line {loader.line + 1}, column {loader.column + 1}"
        raise SpecError(position, f"is not YAML: {error}", str(path)) from error


def _position(text: str) -> str:
    """Return the line and column at the end of a text."""
    return f"line {text.count(chr(10)) + 1}, column {len(text) - text.rfind(chr(10))}"


class _Loader(yaml.SafeLoader):
    """A safe loader that enforces the limits and rejects duplicate keys and all types other than plain ones.

    PyYAML's own loader silently keeps the last of two equal keys.
    """

    # Exclude dates, whose parser raises other errors, and "=".
    yaml_implicit_resolvers = {  # noqa: RUF012
        first: [(tag, pattern) for tag, pattern in resolvers if tag in _TAGS]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = self._n_nodes = 0
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        n_before = self._n_nodes
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _error(event, f"is nested deeper than {MAX_DEPTH} levels, the maximum")
        node = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, yaml.AliasEvent):
            if id(node) not in self._sizes:
                raise _error(event, f"found the alias *{event.anchor} within its own anchor")
            self._n_nodes += self._sizes[id(node)]
        else:
            self._n_nodes += 1
            self._sizes[id(node)] = self._n_nodes - n_before
        if self._n_nodes > MAX_NODES:
            raise _error(event, f"has more than {MAX_NODES} values, the maximum; aliases count in full")
        return node

    def compose_scalar_node(self, anchor: Any) -> yaml.ScalarNode:
        node: yaml.ScalarNode = super().compose_scalar_node(anchor)
        if len(node.value) > MAX_CHARACTERS:
            problem = f"found {len(node.value)} characters; a text has at most {MAX_CHARACTERS}"
            raise _error(node, problem)
        if (forbidden := self.NON_PRINTABLE.search(node.value)) is not None:
            raise _error(node, f"found the character {forbidden.group()!r}, which is not allowed")
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _error(key, f"found a {'list' if key.id == 'sequence' else key.id} as a key; keys must be text")
            if key.value in seen and key.tag != _MERGE:
                raise _error(key, f"the key {key.value!r} is given twice")
            seen.add(key.value)
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        tag = node.tag.replace(_TAG, "!!")
        if node.tag not in _TAGS:
            raise _error(node, f"found the tag {tag!r}; only plain values are allowed")
        if not isinstance(node, _NODE_CLASSES.get(node.tag, yaml.ScalarNode)):
            raise _error(
                node,
                f"found the tag {tag!r} at a {'scalar' if isinstance(node, yaml.ScalarNode) else 'list or mapping'}",
            )
        try:
            value = super().construct_object(node, deep)
        except (ValueError, LookupError, OverflowError) as error:
            raise _error(node, f"found {node.value!r}, which is not {tag}") from error
        if isinstance(value, int) and not -_INT64_LIMIT <= value < _INT64_LIMIT:
            raise _error(node, "found an integer of more than 64 bits")
        return value

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        for key, value in node.value:
            if key.tag == _MERGE and not isinstance(value, (yaml.MappingNode, yaml.SequenceNode)):
                raise _error(value, "found no mapping to merge")
        return super().construct_mapping(node, deep)


def _error(source: yaml.Node | yaml.Event, problem: str) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=cast("yaml.Mark", source.start_mark))

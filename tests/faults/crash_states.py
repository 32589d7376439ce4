"""The possible states of a folder after a power loss, simulated from a record of the calls that changed it.

POSIX guarantees little: the content of a file is on disk after the file was synced, and the entries of a folder after
the folder was synced. Until then, any part of each write may be on disk, in any order; a file that grew may contain
zeros; and each new, renamed or removed entry may be on disk or not. Renames are atomic.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

from .system_calls import Entry

SECTOR_BYTES = 512

Write = tuple[int, bytes | None]
"""Bytes written at an offset; None truncates the file there, or extends it with zeros."""


@dataclass
class File:
    """A file: its bytes on disk, and the writes that may not be on disk yet."""

    durable: bytes = b""
    pending: list[Write] = field(default_factory=list)


@dataclass
class Folder:
    """A folder: its entries on disk, and the changes of entries that may not be on disk yet."""

    durable: dict[str, File | Folder] = field(default_factory=dict)
    pending: list[dict[str, File | Folder | None]] = field(default_factory=list)

    @property
    def live(self) -> dict[str, File | Folder]:
        """The entries as programs see them."""
        return _apply_changes(self.durable, self.pending)


@dataclass(frozen=True)
class State:
    """The files after a power loss, the number of calls before it, and the texts acknowledged until then."""

    after: int
    acknowledged: tuple[str, ...]
    files: Mapping[str, bytes]
    ended: bool = False

    def write(self, folder: Path) -> None:
        """Write the state into an empty folder."""
        for name, data in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)


class Disk:
    """A folder on a disk that may lose power; its content before the recorded calls is on disk."""

    def __init__(self, folder: Path) -> None:
        self._prefix = str(folder)
        self._by_inode: dict[int, File | Folder] = {}
        self._root = self._read(folder)

    def do(self, entry: Entry) -> None:
        """Apply the effect of a call."""
        if entry.name in ("create", "mkdir"):
            made: File | Folder = File() if entry.name == "create" else Folder()
            self._by_inode[entry.inode] = made
            self._folder(entry.path).pending.append({Path(entry.path).name: made})
        elif entry.name in ("write", "truncate"):
            file = self._by_inode[entry.inode]
            assert isinstance(file, File)
            file.pending.append((entry.offset, entry.data if entry.name == "write" else None))
        elif entry.name == "sync":
            synced = self._by_inode[entry.inode]
            if isinstance(synced, File):
                synced.durable = _apply_writes(synced.durable, synced.pending)
            else:
                synced.durable = synced.live
            synced.pending.clear()
        elif entry.name in ("rename", "link"):
            to = entry.data.decode()
            assert Path(to).parent == Path(entry.path).parent, "between folders a rename is two changes"
            change: dict[str, File | Folder | None] = {Path(to).name: self._by_inode[entry.inode]}
            gone: dict[str, File | Folder | None] = {Path(entry.path).name: None} if entry.name == "rename" else {}
            self._folder(entry.path).pending.append({**change, **gone})
        else:
            assert entry.name == "unlink", entry.name
            self._folder(entry.path).pending.append({Path(entry.path).name: None})

    def states(self, most: int, draw: random.Random) -> Iterator[dict[str, bytes]]:
        """Yield at most `most` possible states after a power loss now, first those with all or no pending changes."""
        unsynced = [node for node in self._nodes() if node.pending]
        variants = [_variants(node, draw) for node in unsynced]
        durable, live = [0] * len(unsynced), [1] * len(unsynced)
        choices = [live, durable]
        for at, several in enumerate(variants):
            for number in range(2, len(several)):
                choices += [[*base[:at], number, *base[at + 1 :]] for base in (live, durable)]
        choices += [[draw.randrange(len(several)) for several in variants] for _ in range(most)]
        if len(choices) > most:
            choices = [*choices[:2], *draw.sample(choices[2:], most - 2)]
        for choice in choices:
            picked = {id(node): variants[at][choice[at]] for at, node in enumerate(unsynced)}
            yield dict(self._files(self._root, "", picked))

    def _read(self, path: Path) -> Folder:
        folder = Folder()
        self._by_inode[path.stat().st_ino] = folder
        for each in sorted(path.iterdir()):
            if each.is_dir():
                folder.durable[each.name] = self._read(each)
            else:
                folder.durable[each.name] = self._by_inode[each.stat().st_ino] = File(each.read_bytes())
        return folder

    def _folder(self, path: str) -> Folder:
        folder = self._root
        for name in Path(path).relative_to(self._prefix).parts[:-1]:
            inner = folder.live[name]
            assert isinstance(inner, Folder)
            folder = inner
        return folder

    def _nodes(self) -> list[File | Folder]:
        """Return all files and folders that may exist after a power loss."""
        found: dict[int, File | Folder] = {}
        waiting: list[File | Folder] = [self._root]
        while waiting:
            node = waiting.pop()
            if id(node) not in found:
                found[id(node)] = node
                if isinstance(node, Folder):
                    waiting += [*node.durable.values(), *node.live.values()]
                    waiting += [each for change in node.pending for each in change.values() if each is not None]
        return list(found.values())

    def _files(self, folder: Folder, place: str, picked: Mapping[int, object]) -> Iterator[tuple[str, bytes]]:
        entries = picked.get(id(folder), folder.durable)
        assert isinstance(entries, dict)
        for name, node in entries.items():
            if isinstance(node, Folder):
                yield from self._files(node, f"{place}{name}/", picked)
            else:
                data = picked.get(id(node), node.durable)
                assert isinstance(data, bytes)
                yield place + name, data


def crash_states(disk: Disk, entries: Iterable[Entry], most: int, seed: int = 0) -> Iterator[State]:
    """Yield the distinct states that a power loss between any two calls may leave, at most `most` after each call."""
    draw, seen = random.Random(seed), set()
    acknowledged: list[str] = []
    changes = list(entries)
    for number in range(len(changes) + 1):
        if number:
            entry = changes[number - 1]
            if entry.name == "note":
                acknowledged.append(entry.data.decode())
            else:
                disk.do(entry)
        ended = number == len(changes)
        for files in disk.states(most, draw):
            mark = hash((tuple(acknowledged), ended, tuple(sorted(files.items()))))
            if mark not in seen:
                seen.add(mark)
                yield State(number, tuple(acknowledged), files, ended)


def sample_states(states: Sequence[State], most: int) -> list[State]:
    """Return a sample of `most` states, preferring late ones, and ones that do not only differ in temporary files."""
    if len(states) <= most:
        return list(states)
    seen, first, others = set(), [], []
    for state in reversed(states):
        files = sorted(state.files.items())
        kept = [(name, data) for name, data in files if ".tmp" not in name and not Path(name).name.startswith(".")]
        mark = hash((state.acknowledged, state.ended, tuple(kept)))
        (others if mark in seen else first).append(state)
        seen.add(mark)
    draw = random.Random(0)
    if len(first) > most:
        return draw.sample(first, most)
    return first + draw.sample(others, most - len(first))


def _variants(node: File | Folder, draw: random.Random) -> list[object]:
    """Return possible states of a file or folder: first without pending changes, then with all, then with some."""
    if isinstance(node, Folder):
        return [node.durable, node.live, *(_apply_changes(node.durable, part) for part in _parts(node.pending, draw))]
    pieces = [piece for write in node.pending for piece in _pieces(write)]
    parts: list[object] = [_apply_writes(node.durable, part) for part in _parts(pieces, draw)]
    whole = _apply_writes(node.durable, node.pending)
    for size in {len(whole), (len(node.durable) + len(whole)) // 2}:
        parts.append(node.durable.ljust(size, b"\0"))
    for cut in (1, 40, len(whole) - len(node.durable) - 1):
        parts.append(whole[: len(node.durable) + max(cut, 0)])
    return [node.durable, whole, *dict.fromkeys(parts)]


def _parts(changes: list, draw: random.Random) -> list[list]:
    """Return subsequences of changes: all of them if few; otherwise prefixes, all but one, and random ones."""
    if len(changes) <= 5:
        sizes = range(1, len(changes))
        return [list(part) for size in sizes for part in combinations(changes, size)]
    chosen = [changes[:end] for end in range(1, len(changes))]
    chosen += [changes[:at] + changes[at + 1 :] for at in range(len(changes))]
    chosen += [[each for each in changes if draw.random() < 0.5] for _ in range(16)]
    return draw.sample(chosen, min(len(chosen), 64))


def _pieces(write: Write) -> Iterator[Write]:
    """Split a write into sectors, which the disk writes atomically."""
    offset, data = write
    if data is None:
        yield write
        return
    start = 0
    while start < len(data):
        end = min(len(data), start + SECTOR_BYTES - (offset + start) % SECTOR_BYTES)
        yield offset + start, data[start:end]
        start = end


def _apply_writes(data: bytes, writes: Iterable[Write]) -> bytes:
    content = bytearray(data)
    for offset, new in writes:
        if new is None:
            del content[offset:]
        content.extend(bytes(max(0, offset - len(content))))
        if new is not None:
            content[offset : offset + len(new)] = new
    return bytes(content)


def _apply_changes(
    entries: dict[str, File | Folder], changes: Iterable[Mapping[str, File | Folder | None]]
) -> dict[str, File | Folder]:
    names: dict[str, File | Folder | None] = dict(entries)
    for change in changes:
        names |= change
    return {name: node for name, node in names.items() if node is not None}

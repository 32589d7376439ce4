"""Gives checksums to the shards that an older version wrote without them."""

from __future__ import annotations

from pathlib import Path

from anole.errors import StoreError
from anole.files import read_bytes, write_atomically
from anole.store.content import read_stored, seal_lines
from anole.store.lines import whole_lines
from anole.store.shard import Shard, is_copy, shard_paths


def seal_shards(directory: Path) -> int:
    """Rewrites the shards of a folder that lack checksums; what they hold stays the same.

    Returns:
        The number of rewritten shards.

    Raises:
        StoreError: a shard is corrupt, is in use or cannot be written; the shards before it are rewritten.
    """
    return sum(_seal(directory, path) for path in shard_paths(directory))


def _seal(directory: Path, path: Path) -> bool:
    stored = read_stored(path)
    if stored is None or stored[0].sealed:
        return False
    content, data = stored
    if is_copy(path):
        try:
            return write_atomically(path, seal_lines(content, data))
        except OSError as error:
            raise StoreError(f"{path}: cannot be written: {error.strerror}") from error
    with Shard.open(directory, content.run, content.task) as shard:
        # A tuner may have appended to it until it was locked.
        shard.replace(seal_lines(shard.content, whole_lines(read_bytes(shard.path))))
    return True

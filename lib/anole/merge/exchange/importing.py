"""Import records from other machines: write the runs of databases and folders of shards as local shards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from anole.errors import ShardInUseError, StoreError
from anole.files import write_atomically
from anole.merge.exchange.database_runs import read_runs
from anole.store.content import ShardContent, encode_shard, read_stored
from anole.store.shard import Shard, copy_path, shard_path, shard_paths


@dataclass(frozen=True)
class ImportCounts:
    """The numbers of imported runs and of new trials.

    Attributes:
        continued: runs whose local shards had some of the records and now have all of them.
        known: runs whose records were all stored locally before.
        kept_beside: files of runs that differ from the local runs; only a merge without the local shard reads them.
    """

    new: int = 0
    continued: int = 0
    known: int = 0
    kept_beside: tuple[Path, ...] = ()
    trials: int = 0


def import_all(sources: Sequence[Path], shards_dir: Path) -> Iterator[tuple[Path, ImportCounts]]:
    """Import several sources, after reading and checking all of them; yield each source's result when it is imported.

    Raises:
        StoreError: as for `import_records`. If local runs are in use, the other sources are still imported.
    """
    for source in sources:
        for _ in contents(source):
            pass
    in_use = []
    for source in sources:
        try:
            yield source, import_records(source, shards_dir)
        except ShardInUseError as error:
            in_use.append(str(error))
    if in_use:
        raise ShardInUseError("; ".join(in_use))


def import_records(source: Path, shards_dir: Path) -> ImportCounts:
    """Import all runs from a database or folder of shards into the local shards; no local trial is lost.

    If a local run has different records, because two machines tuned it, it stays as it is, and the imported state is
    stored in a file next to it. Running tuners are not disturbed, because they lock their shards.

    Raises:
        StoreError: the source is missing or corrupt, or a local shard is corrupt, in use or cannot be written. Runs
            imported before the error stay, and importing again is harmless.
    """
    result, in_use = ImportCounts(), []
    for content, data in contents(source):
        try:
            result = _import(content, data, shards_dir, result)
        except ShardInUseError:
            in_use.append(shard_path(shards_dir, content.run))
    if in_use:
        raise ShardInUseError(
            f"{source}: {len(in_use)} runs are in use on this machine and were not imported, such as {in_use[0]}; "
            "all others were. Import again when the other processes have ended"
        )
    return result


def contents(source: Path) -> Iterator[tuple[ShardContent, bytes]]:
    """Yield the content of each run in a database or folder of shards, and the bytes of a shard with that content."""
    return filter(None, map(read_stored, shard_paths(source))) if source.is_dir() else read_runs(source)


def _import(content: ShardContent, data: bytes, shards_dir: Path, result: ImportCounts) -> ImportCounts:
    """Import a run, and return the updated result."""
    path = shard_path(shards_dir, content.run)
    if path.exists() and (local := read_stored(path)) is not None:
        if local[0].continues(content):
            return replace(result, known=result.known + 1)
        if not content.continues(local[0]):
            return _store_copy(content, shards_dir, result)
    with Shard.open(shards_dir, content.run, content.task) as shard:
        n_trials = len(shard.trials)
        if not content.continues(shard.content):
            return _store_copy(content, shards_dir, result)
        shard.replace(data if content.sealed else encode_shard(content, path))
    field = "continued" if n_trials else "new"
    counts = {field: getattr(result, field) + 1, "trials": result.trials + len(content.trials) - n_trials}
    return replace(result, **counts)


def _store_copy(content: ShardContent, shards_dir: Path, result: ImportCounts) -> ImportCounts:
    path = copy_path(shards_dir, content)
    if path.exists():
        return replace(result, known=result.known + 1)
    try:
        write_atomically(path, encode_shard(content, path))
    except OSError as error:
        raise StoreError(f"{path}: cannot be written: {error.strerror}") from error
    return replace(result, kept_beside=(*result.kept_beside, path), trials=result.trials + len(content.trials))

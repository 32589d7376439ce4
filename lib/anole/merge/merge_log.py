"""The state of a merge: the former content of the database, and a log of the changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from anole.merge.untrusted_database import UntrustedDatabase
from anole.store.content import ShardContent


@dataclass(frozen=True)
class Merged:
    """The result of a merge.

    Attributes:
        changed_runs: number of runs that are new or whose shards have changed.
        runs, trials: numbers of runs and trials in the database after the merge.
        unsealed_runs: number of runs whose shards have lines without checksums.
        ignored: a sentence for each file that was not merged because another state was preferred.
        replaced: a sentence for each loss or replacement of former content.
    """

    changed_runs: int
    runs: int
    trials: int
    runs_without_shard: int = 0
    unsealed_runs: int = 0
    ignored: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()


@dataclass
class MergeLog:
    """The actions of a merge so far.

    Attributes:
        runs: keys of the runs that are new or have changed.
        shards: keys of the runs that have a local shard or copy.
        outlived: names of builds that replaced a later build; evaluations in the database belong to the later one.
        ignored, replaced: as in `Merged`.
    """

    runs: set[str] = field(default_factory=set)
    shards: set[str] = field(default_factory=set)
    outlived: set[str] = field(default_factory=set)
    ignored: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)


class Recording(NamedTuple):
    """The state of a shard, ordered by age; if there are only copies, the one with the greatest state is merged.

    A shard only grows, so more bytes mean more records; a shard that was deleted and restarted has a later start.
    """

    started_at: str
    shard_bytes: int
    shard_sha256: str


class Snapshot:
    """The former content of a database, in particular the state of each run's shard; empty if there was none."""

    def __init__(self, database: UntrustedDatabase | None) -> None:
        self._database = database
        types = {"key": str, "started_at": str, "shard_bytes": int, "shard_sha256": str}
        self.recordings = {key: Recording(*state) for key, *state in self._rows("run", types, "")}

    def n_lost(self, content: ShardContent) -> int:
        """Return the number of trials of a run that the database has and its shard does not.

        A trial that was measured again is not lost, unless the shard was restarted.
        """
        key, configs = content.run.key, content.configs
        is_restarted = self.recordings[key].started_at != content.started_at
        types = {"number": int, "config": str, "created_at": str}
        n_lost = 0
        for number, config, created_at in self._rows("trial", types, "where run_key = ?", key):
            is_same = number < len(configs) and configs[number] == config
            shard_created_at = content.trials[number].created_at if is_same else ""
            n_lost += shard_created_at != created_at if is_restarted else shard_created_at < created_at
        return n_lost

    def has_newer(self, table: str, column: str, value: str, created_at: str) -> bool:
        """Whether a table contained a later document with the same name."""
        rows = self._rows(table, {"created_at": str}, f"where {column} = ?", value)
        return any(stored_at > created_at for (stored_at,) in rows)

    def _rows(self, table: str, types: Mapping[str, type], where: str, *parameters: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows whose values have the given types; a damaged file may also hold other rows."""
        if self._database is not None:
            for row in self._database.select(table, types, where, *parameters):
                if all(map(isinstance, row, types.values())):
                    yield row

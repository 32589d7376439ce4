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
        changed_runs: number of runs that were new or whose shards had changed.
        runs, trials: numbers of runs and trials in the database after the merge.
        unsealed_runs: number of runs whose shards have lines without checksums.
        ignored: a sentence for each file that was not merged because another state was preferred.
        replaced: a sentence for each thing that the database no longer contains.
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
        runs: keys of the runs that were new or have changed.
        shards: keys of the runs that have a local shard.
        outlived: names of builds that replaced later ones; evaluations in the database belong to the later build.
        ignored, replaced: as in `Merged`.
    """

    runs: set[str] = field(default_factory=set)
    shards: set[str] = field(default_factory=set)
    outlived: set[str] = field(default_factory=set)
    ignored: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)


class Recording(NamedTuple):
    """The state of a shard, ordered by age; of several copies without a local shard, the greatest is merged.

    A shard only grows, so more bytes mean more trials; a shard that was deleted and started again has a later start.
    """

    started_at: str
    shard_bytes: int
    shard_sha256: str


class Snapshot:
    """The former content of a database, in particular the state of each run's shard; empty if there was none."""

    def __init__(self, database: UntrustedDatabase | None) -> None:
        self._database = database
        wanted = {"key": str, "started_at": str, "shard_bytes": int, "shard_sha256": str}
        self.recordings = {key: Recording(*state) for key, *state in self._typed("run", wanted, "")}

    def n_lost(self, content: ShardContent) -> int:
        """Return how many trials of a run in the database are missing in its shard.

        A trial that was measured again is not lost, unless the shard was restarted.
        """
        key, configs = content.run.key, content.configs
        is_restarted = self.recordings[key].started_at != content.started_at
        wanted = {"number": int, "config": str, "created_at": str}
        n_lost = 0
        for number, config, created_at in self._typed("trial", wanted, "where run_key = ?", key):
            is_same = number < len(configs) and configs[number] == config
            at = content.trials[number].created_at if is_same else ""
            n_lost += at != created_at if is_restarted else at < created_at
        return n_lost

    def has_newer(self, table: str, column: str, value: str, created_at: str) -> bool:
        """Whether a table contained a later document with the same name."""
        found = self._typed(table, {"created_at": str}, f"where {column} = ?", value)
        return any(made_at > created_at for (made_at,) in found)

    def _typed(self, table: str, wanted: Mapping[str, type], where: str, *parameters: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows whose values have the right types; in a damaged file, others are possible."""
        if self._database is not None:
            for row in self._database.select(table, wanted, where, *parameters):
                if all(map(isinstance, row, wanted.values())):
                    yield row

"""What the database held before a merge: the state of each run, and when each document was made."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

Select = Callable[..., Iterable[tuple[Any, ...]]]
"""Returns the rows of a table, given its name, the columns, a condition and the parameters of that."""


class Recording(NamedTuple):
    """The state of a shard in the database; of two copies without a local shard the greater one counts.

    A shard only grows, so more bytes mean more trials; a shard that was deleted and started again has a later start.
    """

    started_at: str
    shard_bytes: int
    shard_sha256: str


class Before:
    """What a database held.

    Attributes:
        recordings: the state of each run's shard, by the run's key.
    """

    def __init__(self, select: Select) -> None:
        self._select = select
        wanted = {"key": str, "started_at": str, "shard_bytes": int, "shard_sha256": str}
        runs = self._typed("run", wanted, "")
        self.recordings = {key: Recording(*state) for key, *state in runs}

    def n_lost(self, run_key: str, configs: tuple[str, ...], times: tuple[str, ...], *, anew: bool) -> int:
        """Returns how many trials of a run are not among those that its shard holds now.

        Args:
            run_key: the run.
            configs: the configs of the trials that the shard holds.
            times: when they were measured; one that was measured again is not lost.
            anew: whether the shard was begun anew, so that even a newer measurement is another trial.
        """
        wanted = {"number": int, "config": str, "created_at": str}
        found = self._typed("trial", wanted, "where run_key = ?", run_key)
        n_lost = 0
        for number, config, created_at in found:
            at = times[number] if number < len(configs) and configs[number] == config else ""
            n_lost += at != created_at if anew else at < created_at
        return n_lost

    def has_newer(self, table: str, column: str, value: str, created_at: str) -> bool:
        """Returns whether a table held a document of some name that was made later."""
        found = self._typed(table, {"created_at": str}, f"where {column} = ?", value)
        return any(made_at > created_at for (made_at,) in found)

    def _typed(self, table: str, wanted: Mapping[str, type], where: str, *parameters: str) -> Iterator[tuple[Any, ...]]:
        """Yields those rows whose values have the right types, which a damaged file may lack."""
        for row in self._select(table, wanted, where, *parameters):
            if all(map(isinstance, row, wanted.values())):
                yield row

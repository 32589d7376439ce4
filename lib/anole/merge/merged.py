"""The result of a merge: what it wrote, what it replaced, and what it ignored."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Merged:
    """The result of a merge.

    Attributes:
        changed_runs: number of runs that the database did not hold in the state of their shards.
        runs, trials: numbers of runs and trials that the database holds now.
        runs_without_shard: number of these runs that have no shard here; only the database holds them.
        unsealed_runs: number of runs whose shard here has no checksums.
        ignored: what was not merged because another state of it was preferred, a sentence for each.
        replaced: what the database held and does not hold any more, a sentence for each.
    """

    changed_runs: int
    runs: int
    trials: int
    runs_without_shard: int = 0
    unsealed_runs: int = 0
    ignored: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()


@dataclass
class Changes:
    """What a merge has done so far.

    Attributes:
        runs: keys of the runs that were new or had another state.
        shards: keys of the runs that have a shard here.
        outlived: names of the builds that took the place of later ones; what the database holds of the evaluation of
            such a build belongs to the later one.
        ignored, replaced: as in `Merged`.
    """

    runs: set[str] = field(default_factory=set)
    shards: set[str] = field(default_factory=set)
    outlived: set[str] = field(default_factory=set)
    ignored: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)

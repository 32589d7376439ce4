"""The result of a merge: what it wrote, what it replaced, and what it ignored."""

from __future__ import annotations

from dataclasses import dataclass, field

Entity = tuple[str, str]
"""Something that the database holds in rows of its own: its kind (a name in `checksums.KINDS`) and its key."""


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
        entities: all whose rows were written or removed.
        runs: keys of the runs that were new or had another state.
        shards: keys of the runs that have a shard here.
        ignored, replaced: as in `Merged`.
    """

    entities: set[Entity] = field(default_factory=set)
    runs: set[str] = field(default_factory=set)
    shards: set[str] = field(default_factory=set)
    ignored: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)

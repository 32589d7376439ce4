"""What a job that measures on a target needs of this machine, so that nothing disturbs what is timed."""

from __future__ import annotations

from dataclasses import dataclass

from anole.keys import canonical_json
from anole.project.pipeline import Pipeline
from anole.targets import get_target
from anole.targets.base import Place


@dataclass(frozen=True)
class Needs:
    """What one job takes while it runs.

    Attributes:
        threads: cores: all of them where the processor is measured, so that nothing runs beside it.
        device: how many of Snakemake's resource ``device``, of which there is one: the processor's speed.
        gpu: how many of Snakemake's resource ``gpu``: this machine's GPUs.
        measure: where candidates run, as ``anole tune --measure`` takes it; ``{}`` for this machine.
    """

    threads: int
    device: int
    gpu: int
    measure: str


def n_gpus(pipeline: Pipeline) -> int:
    """Returns how many GPUs of this machine a project's jobs share, at least one."""
    here = [name for name in pipeline.descriptions if name not in pipeline.absences]
    targets = [get_target(pipeline.descriptions[name]) for name in here if pipeline.place(name) == Place.GPU]
    units = {unit.name for target in targets if target.place == Place.GPU for unit in target.units()}
    return max(1, len(units))


def needs_of(pipeline: Pipeline, target: str, cores: int) -> Needs:
    """Returns what a job that measures on a target needs.

    Args:
        pipeline: the project's pipeline.
        target: the target's name in models.yaml.
        cores: how many cores all jobs share.
    """
    place = pipeline.place(target)
    shares = {Place.PROCESSOR: 1, Place.GPU: n_gpus(pipeline), Place.ELSEWHERE: 2, Place.SIMULATOR: cores}
    remote = pipeline.spec.targets[target].remote
    return Needs(
        threads=max(1, cores // shares[place]),
        device=int(place == Place.PROCESSOR),
        gpu=int(place == Place.GPU),
        measure=canonical_json({} if remote is None else remote.to_json()),
    )

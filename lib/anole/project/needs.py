"""The resources that a measuring job reserves, so that no other job disturbs its timings."""

from __future__ import annotations

from dataclasses import dataclass

from anole.keys import canonical_json
from anole.project.pipeline import Pipeline
from anole.targets import get_target
from anole.targets.base import Place


@dataclass(frozen=True)
class Needs:
    """The resources of one job.

    Attributes:
        threads: number of cores; all of them if the job measures on the CPU, so that nothing runs beside it.
        device: amount of Snakemake's resource ``device``, of which there is one: the CPU while it is measured.
        gpu: amount of Snakemake's resource ``gpu``: this machine's GPUs.
        measure: where candidates run, in the format of ``anole tune --measure``; ``{}`` for this machine.
    """

    threads: int
    device: int
    gpu: int
    measure: str


def limits_of(pipeline: Pipeline) -> dict[str, int]:
    """Returns how much there is of each resource of Snakemake that a project's jobs share, and of no other.

    A resource that no job of Anole needs is left to the other rules of a workflow.
    """
    places = {pipeline.place(name) for name in pipeline.descriptions}
    limits = {Place.PROCESSOR: {"device": 1}, Place.GPU: {"gpu": n_gpus(pipeline)}}
    return {name: limit for place in places for name, limit in limits.get(place, {}).items()}


def n_gpus(pipeline: Pipeline) -> int:
    """Returns the number of this machine's GPUs that a project's jobs share, at least one."""
    here = [name for name in pipeline.descriptions if name not in pipeline.absences]
    targets = [get_target(pipeline.descriptions[name]) for name in here if pipeline.place(name) == Place.GPU]
    units = {unit.name for target in targets if target.place == Place.GPU for unit in target.units()}
    return max(1, len(units))


def needs_of(pipeline: Pipeline, target: str, cores: int) -> Needs:
    """Returns the resources of a job that measures on a target.

    Args:
        pipeline: the project's pipeline.
        target: the target's name in models.yaml.
        cores: number of cores that all jobs share.
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

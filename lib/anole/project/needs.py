"""What a job that measures on a target needs of this machine, so that nothing disturbs what is timed."""

from __future__ import annotations

from dataclasses import dataclass

from anole.keys import canonical_json
from anole.project.pipeline import Pipeline
from anole.targets.base import Place
from anole.targets.cuda.device.gpus import present_gpus


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


def n_gpus() -> int:
    """Returns how many GPUs jobs may share, at least one."""
    return max(1, len(present_gpus()))


def needs_of(pipeline: Pipeline, target: str, cores: int) -> Needs:
    """Returns what a job that measures on a target needs.

    Args:
        pipeline: of the project.
        target: the target's name in models.yaml.
        cores: how many cores all jobs share.
    """
    place = pipeline.place(target)
    shares = {Place.PROCESSOR: 1, Place.GPU: n_gpus(), Place.ELSEWHERE: 2, Place.SIMULATOR: cores}
    remote = pipeline.spec.targets[target].remote
    return Needs(
        threads=max(1, cores // shares[place]),
        device=int(place == Place.PROCESSOR),
        gpu=int(place == Place.GPU),
        measure=canonical_json({} if remote is None else remote.to_json()),
    )

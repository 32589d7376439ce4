"""The resources of jobs, which keep timings undisturbed and let a cluster's scheduler place jobs."""

from __future__ import annotations

from dataclasses import dataclass

from anole.keys import canonical_json
from anole.project.pipeline import Pipeline
from anole.targets import get_kind, get_target
from anole.targets.base import DeviceLocation

_BUILDERS_ON_CLUSTER = 4
"""Number of cores for a cluster job that builds candidates for a GPU or a remote device."""

_SNAKEMAKE_NAMES = {"partition": "slurm_partition"}
"""Snakemake's names of resources that have the scheduler's names in `nodes`."""


@dataclass(frozen=True)
class JobResources:
    """The resources of one job.

    Attributes:
        threads: number of cores. A job that measures on the CPU takes all, or the target's threads on a cluster.
        device: amount of the resource ``device``; each machine has one unit, which a job takes to measure on the CPU.
        gpu: amount of the resource ``gpu``: 1 if the job measures on a GPU.
        measure: the argument of ``anole tune --measure``; ``{}`` for this machine.
    """

    threads: int
    device: int
    gpu: int
    measure: str


def resource_limits(pipeline: Pipeline) -> dict[str, int]:
    """Return the limits of the Snakemake resources that a project's jobs share.

    Resources that no job of Anole uses are left to the workflow's other rules.
    """
    locations = {pipeline.location(name) for name in pipeline.descriptions}
    locations |= {_undescribed_location(pipeline, name) for name in pipeline.undescribed}
    limits = {DeviceLocation.PROCESSOR: {"device": 1}, DeviceLocation.GPU: {"gpu": n_gpus(pipeline)}}
    return {name: limit for location in locations for name, limit in limits.get(location, {}).items()}


def n_gpus(pipeline: Pipeline) -> int:
    """Return the number of this machine's GPUs that a project's jobs share, at least one."""
    names = [name for name in pipeline.descriptions if pipeline.location(name) == DeviceLocation.GPU]
    targets = [get_target(pipeline.descriptions[name]) for name in names]
    # A target on a cluster's nodes counts as present, but this machine may have no such GPU.
    present = [target for target in targets if target.location == DeviceLocation.GPU and target.absence() is None]
    units = {unit.name for target in present for unit in target.units()}
    return max(1, len(units))


def resources_of(pipeline: Pipeline, target: str, cores: int | None) -> JobResources:
    """Return the resources of a job that measures on a target, or that describes the target if no node has yet.

    All jobs share the `cores`, which is None if each job gets a node of a cluster.
    """
    if target not in pipeline.descriptions:
        is_gpu = _undescribed_location(pipeline, target) == DeviceLocation.GPU
        return JobResources(threads=1, device=int(not is_gpu), gpu=int(is_gpu), measure="{}")
    location = pipeline.location(target)
    remote = pipeline.spec.targets[target].remote
    return JobResources(
        threads=_threads_on_node(pipeline, target, location) if cores is None else _share(pipeline, location, cores),
        device=int(location == DeviceLocation.PROCESSOR),
        gpu=int(location == DeviceLocation.GPU),
        measure=canonical_json({} if remote is None else remote.to_json()),
    )


def node_resources(pipeline: Pipeline, target: str) -> dict[str, str | int]:
    """Return the resources by which a cluster's scheduler chooses a node for a target, by Snakemake's names."""
    resources = pipeline.spec.targets[target].nodes
    return {_SNAKEMAKE_NAMES.get(name, name): value for name, value in resources.items()}


def _undescribed_location(pipeline: Pipeline, target: str) -> DeviceLocation:
    return get_kind(pipeline.spec.targets[target].kind).location


def _share(pipeline: Pipeline, location: DeviceLocation, cores: int) -> int:
    shares = {
        DeviceLocation.PROCESSOR: 1,
        DeviceLocation.GPU: n_gpus(pipeline),
        DeviceLocation.ELSEWHERE: 2,
        DeviceLocation.SIMULATOR: cores,
    }
    return max(1, cores // shares[location])


def _threads_on_node(pipeline: Pipeline, name: str, location: DeviceLocation) -> int:
    target = get_target(pipeline.description(name))
    if location == DeviceLocation.ELSEWHERE or target.location == DeviceLocation.GPU:
        return _BUILDERS_ON_CLUSTER
    return target.threads if target.location == DeviceLocation.PROCESSOR else 1

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from anole.documents import layout
from anole.documents.described import write_described
from anole.keys import canonical_json
from anole.project.hardware import describe_this_machine, hardware_request
from anole.project.job_resources import JobResources, node_resources, resource_limits, resources_of
from anole.project.pipeline import Pipeline
from anole.targets.rpc.address import Remote

MODELS = """
models: {{net: {{source: "torchvision:alexnet", inputs: {{x: [1, 3, 64, 64]}}}}}}
targets: {{here: {target}}}
builds: [{{model: net, target: here, trials: 0}}]
"""
BY_HAND = "kind: cpu, mcpu: znver5, threads: 64, model: EPYC 9755"
REMOTE = "{rpc: 'host:9190', key: zen}"
PLAIN_REMOTE = canonical_json(Remote("host", 9190, "zen").to_json())


def load(folder: Path, target: str) -> Pipeline:
    (folder / "models.yaml").write_text(MODELS.format(target=target))
    return Pipeline.load(folder / "models.yaml")


@pytest.mark.parametrize(
    ("target", "limits"),
    [
        ("{kind: cpu}", {"device": 1}),
        ("{kind: vta}", {}),
        ("{kind: cpu, mcpu: znver4, threads: 2, measure: {rpc: 'host:9190', key: zen}}", {}),
        ("{kind: cuda, arch: sm_90}", {"gpu": 1}),
        ("{kind: cpu, nodes: {partition: amd}}", {"device": 1}),
        ("{kind: cuda, arch: sm_90, nodes: {partition: gpu}}", {"gpu": 1}),
    ],
)
def test_only_shared_resources_are_limited(tmp_path: Path, target: str, limits: dict[str, int]) -> None:
    assert resource_limits(load(tmp_path, target)) == limits


@pytest.mark.parametrize(
    ("target", "on_8_cores", "on_a_node"),
    [
        ("{kind: cpu, threads: 1}", JobResources(8, 1, 0, "{}"), JobResources(1, 1, 0, "{}")),
        (f"{{{BY_HAND}, nodes: {{partition: amd}}}}", JobResources(8, 1, 0, "{}"), JobResources(64, 1, 0, "{}")),
        ("{kind: vta}", JobResources(1, 0, 0, "{}"), JobResources(1, 0, 0, "{}")),
        ("{kind: cuda, arch: sm_90}", JobResources(8, 0, 1, "{}"), JobResources(4, 0, 1, "{}")),
        (f"{{{BY_HAND}, measure: {REMOTE}}}", JobResources(4, 0, 0, PLAIN_REMOTE), JobResources(4, 0, 0, PLAIN_REMOTE)),
    ],
)
def test_a_job_gets_its_share_of_the_cores_or_the_cores_it_uses_on_a_node(
    tmp_path: Path, target: str, on_8_cores: JobResources, on_a_node: JobResources
) -> None:
    pipeline = load(tmp_path, target)
    assert resources_of(pipeline, "here", 8) == on_8_cores
    assert resources_of(pipeline, "here", None) == on_a_node


def test_describing_a_target_requests_its_device(tmp_path: Path) -> None:
    pipeline = load(tmp_path, "{kind: cuda, nodes: {partition: gpu}}, there: {kind: cpu, nodes: {partition: amd}}")
    assert pipeline.undescribed == ["here"], "only targets with a build"
    assert resources_of(pipeline, "here", None) == JobResources(1, 0, 1, "{}")
    assert resources_of(pipeline, "there", None) == JobResources(1, 1, 0, "{}")
    assert resource_limits(pipeline) == {"gpu": 1}


def test_resources_of_an_undescribed_target_are_provisional(tmp_path: Path) -> None:
    entry = "{kind: vta, nodes: {partition: any}}", "{kind: cpu, threads: 1, nodes: {partition: amd}}"
    assert load(tmp_path, entry[0]).undescribed == [], "a simulator is not detected"
    pipeline = load(tmp_path, entry[1])
    assert pipeline.undescribed == ["here"]
    assert resources_of(pipeline, "here", None) == JobResources(1, 1, 0, "{}")
    described = describe_this_machine(hardware_request(pipeline.spec.targets["here"]))
    described = replace(described, description={**described.description, "threads": 48})
    write_described(tmp_path / layout.described_path("here"), described)
    pipeline = load(tmp_path, entry[1])
    assert pipeline.undescribed == []
    assert resources_of(pipeline, "here", None) == JobResources(48, 1, 0, "{}")


@pytest.mark.parametrize(
    ("nodes", "resources"),
    [
        (
            "{partition: amd, constraint: zen5, qos: long, runtime: 600}",
            {"slurm_partition": "amd", "constraint": "zen5", "qos": "long", "runtime": 600},
        ),
        ("{node_selector: 'cpu=zen5,disk=ssd'}", {"node_selector": "cpu=zen5,disk=ssd"}),
        (None, {}),
    ],
)
def test_nodes_are_chosen_by_snakemakes_names(tmp_path: Path, nodes: str | None, resources: dict[str, object]) -> None:
    chosen = f", nodes: {nodes}" if nodes else ""
    assert node_resources(load(tmp_path, f"{{kind: cpu{chosen}}}"), "here") == resources

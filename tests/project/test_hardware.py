"""Hardware of a target: detected here, described by a node, or stored for jobs on other machines."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from anole.config.entries import TargetSpec
from anole.documents.described import read_described, write_described
from anole.errors import SpecError, TargetError
from anole.host.processor import processor
from anole.project.hardware import Hardware, describe_target, describe_this_machine, hardware_request, keep, look_for
from anole.targets.rpc.address import Remote

NODES = {"partition": "amd"}
ON_NODES = TargetSpec("zen", "cpu", {"threads": 1}, nodes=NODES)
BY_HAND = TargetSpec("zen", "cpu", {"mcpu": "znver5", "threads": 64, "model": "EPYC 9755"}, nodes=NODES)
GPU = TargetSpec("gpu", "cuda", {"arch": "sm_90"})


def kept_path(project: Path, target: TargetSpec) -> Path:
    return project / "work/targets" / f"{target.name}.json"


def describe_on_node(target: TargetSpec, project: Path, **changes: Any) -> dict[str, Any]:
    """Write the description of a node with another CPU, and return it."""
    described = describe_this_machine(hardware_request(target))
    description = {**described.description, "model": "EPYC 9755", **changes}
    write_described(kept_path(project, target), replace(described, description=description, node="zen1"))
    return description


@pytest.mark.parametrize("kept", [False, True])
def test_hardware_is_unknown_before_a_node_describes_it(tmp_path: Path, kept: bool) -> None:
    assert look_for(ON_NODES, tmp_path, kept) == Hardware(None, None)
    with pytest.raises(SpecError) as caught:
        describe_target(ON_NODES, tmp_path)
    assert str(caught.value) == (
        "models.yaml: targets.zen: no node has described it yet; "
        "run `snakemake work/targets/zen.json` with your cluster's profile"
    )


@pytest.mark.parametrize("kept", [False, True])
def test_a_target_on_nodes_has_the_nodes_description(tmp_path: Path, kept: bool) -> None:
    description = describe_on_node(ON_NODES, tmp_path)
    assert description["model"] != processor().name
    assert look_for(ON_NODES, tmp_path, kept) == Hardware(description, None)
    assert describe_target(ON_NODES, tmp_path) == description


@pytest.mark.parametrize(
    "change", [{"nodes": {"partition": "intel"}}, {"settings": {"threads": 2}}, {"settings": {}}, {"kind": "cuda"}]
)
def test_a_description_for_other_settings_is_stale(tmp_path: Path, change: dict[str, Any]) -> None:
    describe_on_node(ON_NODES, tmp_path)
    assert look_for(replace(ON_NODES, **change), tmp_path) == Hardware(None, None)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 99}'])
def test_a_damaged_description_is_ignored(tmp_path: Path, text: str) -> None:
    describe_on_node(ON_NODES, tmp_path)
    kept_path(tmp_path, ON_NODES).write_text(text)
    assert look_for(ON_NODES, tmp_path) == Hardware(None, None)


@pytest.mark.parametrize(
    ("target", "absence"),
    [
        (BY_HAND, None),
        (replace(BY_HAND, nodes={}, remote=Remote("tracker", 9190, "zen")), None),
        (replace(BY_HAND, nodes={}), f"cpu EPYC 9755 with 64 threads: this machine's CPU is {processor().name}"),
    ],
    ids=["on nodes", "remote", "here"],
)
def test_a_fully_given_target_is_absent_only_if_it_must_be_local(
    tmp_path: Path, target: TargetSpec, absence: str | None
) -> None:
    found = look_for(target, tmp_path)
    assert found.absence == absence if absence is None else str(found.absence).startswith(absence)
    assert found.description is not None and describe_target(target, tmp_path) == found.description
    assert {name: found.description[name] for name in BY_HAND.settings} == BY_HAND.settings


def test_impossible_settings_are_errors_even_if_the_target_is_not_required(tmp_path: Path) -> None:
    too_many = TargetSpec("cpu", "cpu", {"threads": 1 << 20})
    for target in (too_many, replace(too_many, required=False)):
        with pytest.raises(
            SpecError, match=r"^models\.yaml: targets\.cpu: found threads: 1048576; this process may use"
        ):
            look_for(target, tmp_path)


def test_a_job_uses_the_stored_description(tmp_path: Path) -> None:
    description = {"kind": "cpu", "model": "the head's"}
    here = TargetSpec("cpu", "cpu", {"threads": 1})
    keep(here, Hardware(description, "it is elsewhere"), tmp_path)
    assert look_for(here, tmp_path, kept=True) == Hardware(description, "it is elsewhere")
    assert look_for(here, tmp_path).description == describe_target(here, tmp_path) != description
    assert read_described(kept_path(tmp_path, here)).asked == hardware_request(here)
    keep(GPU, Hardware(None, "no GPU"), tmp_path)
    assert look_for(GPU, tmp_path, kept=True) == Hardware(None, "no GPU")


def test_a_job_detects_hardware_without_a_stored_description(tmp_path: Path) -> None:
    here = TargetSpec("cpu", "cpu", {"threads": 1})
    assert look_for(here, tmp_path, kept=True) == look_for(here, tmp_path)


def test_a_description_contains_the_hardware_and_the_request() -> None:
    described = describe_this_machine(hardware_request(ON_NODES))
    assert described.asked == {"kind": "cpu", "settings": {"threads": 1}, "nodes": NODES}
    assert described.description["model"] == processor().name and described.description["threads"] == 1
    assert described.absence is None and described.node
    assert json.loads(json.dumps(described.description)) == described.description


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "EPYC 9755", "threads": 1}, f"found model {processor().name!r}, not 'EPYC 9755'"),
        (BY_HAND.settings, f"cpu EPYC 9755 with 64 threads: this machine's CPU is {processor().name}"),
        ({"threads": 1 << 20}, "may use"),
    ],
    ids=["another model", "another machine", "too few cores"],
)
def test_a_node_with_other_hardware_raises_an_error(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(TargetError) as caught:
        describe_this_machine(hardware_request(replace(ON_NODES, settings=settings)))
    assert message in str(caught.value)

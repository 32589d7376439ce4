"""A damaged file of a stage is made again by the command that the message names; new weights are noticed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

pytestmark = [pytest.mark.workflow, pytest.mark.guard]


def only(folder: Any, pattern: str) -> Any:
    (path,) = folder.glob(pattern)
    return path


def the_message(output: str) -> str:
    """Returns the only message of an output, which the last lines repeat with what is left out because of it."""
    lines = {line for line in output.splitlines() if line.startswith("anole: ")}
    message = min(lines, key=len)
    assert all(message.removeprefix("anole: ") in line for line in lines)
    return message


def test_a_damaged_manifest_is_made_again_as_told(one: Any) -> None:
    path = only(one.folder, "work/models/*/*.json")
    before = path.read_bytes()
    path.write_bytes(b"[" * 100_000)
    only(one.folder, "work/tuned/*/*/*.json").unlink()
    outcome = one.snakemake("tuned")
    assert outcome.code != 0
    line = the_message(outcome.output)
    assert "is not JSON: " in line and line.endswith("; `snakemake --forcerun extract` writes it again")
    outcome = one.snakemake("tuned", "--forcerun", "extract")
    assert (outcome.code, sorted(outcome.jobs)) == (0, ["extract", "tune"])
    assert path.read_bytes() == before
    assert [len(content.trials) for content in one.shards().values()] == [2]


def test_new_weights_in_a_file_of_their_own_make_a_new_build(one: Any) -> None:
    model = onnx.load(one.folder / "chain.onnx")
    weights = numpy_helper.to_array(model.graph.initializer[0])
    onnx.save(model, one.folder / "chain.onnx", save_as_external_data=True, location="chain.data", size_threshold=0)
    outcome = one.snakemake("builds/chain-cpu-random")
    assert (outcome.code, sorted(outcome.jobs)) == (0, ["compile", "extract"])
    (one.folder / "chain.data").write_bytes(np.ascontiguousarray(weights[::-1]).tobytes())
    outcome = one.snakemake("builds/chain-cpu-random")
    assert (outcome.code, sorted(outcome.jobs)) == (0, ["compile", "extract"])
    (one.folder / "chain.data").unlink()
    outcome = one.snakemake("tuned")
    assert (outcome.code, outcome.jobs) == (2, {})
    assert "anole: models.yaml: models.chain.source: chain.onnx: tensor 'weight0': its weights are in" in outcome.output

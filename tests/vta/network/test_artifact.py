"""Saved networks: loading restores them, and damaged files are refused or found to differ."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from anole.errors import AnoleError, BuildError
from anole.task import Conv2d
from anole_vta.geometry import INSTRUCTION_BYTES, Geometry
from anole_vta.isa import AluOpcode
from anole_vta.network.artifact import BuiltNetwork, save_network
from anole_vta.network.network import AcceleratorLayer, HostCall, IntegerReference, Pool, Quantized, QuantizedNetwork
from anole_vta.network.simulated_accelerator import load_step
from anole_vta.templates.design import default_config

from ...examples import examples
from ..conftest import STEPS, change_arrays, change_stream

PLUS = Geometry(variant="vta++")


def save(folder, network, loaded):
    folder.mkdir()
    save_network(folder, network, loaded)
    return BuiltNetwork.load(folder)


def agree(built, inputs, name):
    found, expected = built.run(inputs), built.run(inputs, IntegerReference())
    return np.array_equal(found[name].numbers, expected[name].numbers)


@settings(max_examples=examples(50), deadline=None)
@given(case=STEPS)
def test_a_step_is_loaded_as_it_was_saved(tmp_path_factory, case):
    loaded = case.load()
    built = save(tmp_path_factory.mktemp("step") / "net", case.network, {"y": loaded})
    assert built.network == case.network
    (step,) = built.network.steps
    for name in ("weight", "bias"):
        np.testing.assert_array_equal(getattr(step, name, None), getattr(case.step, name, None))
    assert built.hardware.loaded["y"].program == loaded.program
    assert agree(built, case.inputs, "y")


def make_network(tail=()):
    """Return a network of a layer and a pooling, and their programs."""
    rng = np.random.default_rng(0)
    w = Conv2d(1, 6, 6, 5, 20, (3, 3), padding=(1, 1, 1, 1))
    layer = AcceleratorLayer(
        *("layer", w, default_config(w, PLUS), "x", "y", None, -4, -4, 0, 0, -127, 127, (1, 6, 6, 20)),
        rng.integers(-128, 128, (3, 3, 5, 20), np.int8),
        rng.integers(-5000, 5000, 20).astype(np.int32),
    )
    pool = Pool("pool", (2, 2), (2, 2), (0, 0, 0, 0), "y", "z", 0)
    network = QuantizedNetwork(("x",), ("z",), (layer, pool, *tail))
    return network, {"y": load_step(layer, PLUS), "z": load_step(pool, PLUS, (1, 6, 6, 20))}


INPUTS = [Quantized(np.random.default_rng(1).integers(-127, 128, (1, 6, 6, 5), np.int8), -4)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    network, loaded = make_network()
    built = save(tmp_path / "net", network, loaded)
    assert agree(built, INPUTS, "y") and agree(built, INPUTS, "z")
    return tmp_path / "net"


def test_outputs_are_floating_point(folder: Path) -> None:
    built = BuiltNetwork.load(folder)
    (output,) = built.outputs(built.run(INPUTS))
    assert (output.dtype, output.shape) == (np.float32, (1, 3, 3, 20))


def test_the_folder_holds_streams_constants_and_the_manifest(folder: Path) -> None:
    plain = json.loads((folder / "network.json").read_text())
    assert [step["kind"] for step in plain["steps"]] == ["layer", "pool"]
    assert sorted(path.name for path in (folder / "steps").iterdir()) == [
        "000.npz", "000.stream", "001.npz", "001.stream",
    ]  # fmt: skip
    _, loaded = make_network()
    assert (folder / "steps/000.stream").stat().st_size == INSTRUCTION_BYTES * len(loaded["y"].program.instructions)


def test_a_host_function_needs_the_library(tmp_path: Path) -> None:
    network, loaded = make_network([HostCall("host2", ("z",), ("end",))])
    built = save(tmp_path / "net", network, loaded)
    assert built.network == network
    with pytest.raises(BuildError, match="there is no library with the host function host2"):
        built.run(INPUTS)


MANIFEST, STREAM, CONSTANTS = "network.json", "steps/000.stream", "steps/000.npz"
NO_BUILD = "net: is not a build for vta: "


def flip_bit(old: bytes) -> bytes:
    """Flip a bit of the weights."""
    at = old.index(b"weight.npy") + 300
    return old[:at] + bytes([old[at] ^ 1]) + old[at + 1 :]


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("host.so", lambda _: b"\x7fELF and no more", r"host\.so: cannot be loaded"),
        *(
            (MANIFEST, lambda _, content=content: content, NO_BUILD)
            for content in (b"", b"{", b"[]", b"7", b'{"schema": 1}', b'{"schema": 1, "steps": [1]}', b"\xff")
        ),
        (MANIFEST, lambda old: old.replace(b'"schema": 1', b'"schema": 2'), "found schema 2; this Anole reads 1"),
        (CONSTANTS, lambda _: b"", NO_BUILD),
        (CONSTANTS, lambda old: old[: len(old) // 2], NO_BUILD),
        (CONSTANTS, lambda _: b"no archive", NO_BUILD),
        (CONSTANTS, flip_bit, "CRC"),
        (STREAM, lambda old: old[:-16] + bytes([old[-16] | 7]) + old[-15:], "StreamError: unknown opcode 7"),
    ],
)
def test_damaged_files_are_refused(folder: Path, name: str, damage: Callable[[bytes], bytes], message: str) -> None:
    path = folder / name
    path.write_bytes(damage(path.read_bytes() if path.exists() else b""))
    with pytest.raises(BuildError, match=message):
        BuiltNetwork.load(folder)


@pytest.mark.parametrize("change", [{"weight": lambda weight: weight[0]}, {"bias": lambda bias: bias.ravel()}])
def test_constants_of_another_shape_are_refused(folder: Path, change: dict[str, Any]) -> None:
    change_arrays(folder / CONSTANTS, **change)
    with pytest.raises(BuildError, match=NO_BUILD):
        BuiltNetwork.load(folder)


def test_a_stream_without_its_end_is_refused(folder: Path) -> None:
    path = folder / "steps/001.stream"
    path.write_bytes(path.read_bytes()[:-INSTRUCTION_BYTES])
    with pytest.raises(AnoleError, match="does not end with FINISH"):
        BuiltNetwork.load(folder).run(INPUTS)


def change_manifest(folder: Path, **fields: Any) -> None:
    plain = json.loads((folder / MANIFEST).read_text())
    plain["steps"][0] |= fields
    (folder / MANIFEST).write_text(json.dumps(plain))


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: change_stream(folder / STREAM, AluOpcode.SHR, PLUS, imm=3),
        lambda folder: change_stream(folder / STREAM, AluOpcode.CLP, PLUS, imm=126),
        lambda folder: change_arrays(folder / CONSTANTS, uop=lambda uop: uop + 1),
        lambda folder: change_manifest(folder, result_exponent=1),
        lambda folder: change_manifest(folder, high=5),
        lambda folder: change_manifest(folder, low=-3),
    ],
    ids=["shift", "clip", "micro-operations", "scale", "high", "low"],
)
def test_a_program_must_match_its_layer_in_the_manifest(folder: Path, change: Callable[[Path], None]) -> None:
    change(folder)
    assert not agree(BuiltNetwork.load(folder), INPUTS, "y")

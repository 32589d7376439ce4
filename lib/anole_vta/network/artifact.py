"""Save and load networks for the accelerator: instruction streams, packed constants and the host library."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from anole.errors import BuildError
from anole.files import document_text
from anole.task import workload_from_json, workload_to_json
from anole_vta.geometry import Geometry
from anole_vta.isa import StreamError, Uop, decode_stream, decode_uop, encode_stream, encode_uop
from anole_vta.network.network import (
    AcceleratorLayer,
    Host,
    HostCall,
    NetworkStep,
    Pool,
    QuantizedNetwork,
    StepRunner,
    Value,
    float_of,
    run_quantized,
)
from anole_vta.network.simulated_accelerator import LoadedStep, SimulatedAccelerator, unpack_weight
from anole_vta.templates.program import Program, Region

SCHEMA = 1
HOST_LIBRARY = "host.so"
_KINDS: dict[str, type[NetworkStep]] = {"layer": AcceleratorLayer, "pool": Pool, "host": HostCall}
_ARRAYS = ("weight", "bias")


def save_network(folder: Path, network: QuantizedNetwork, loaded: Mapping[str, LoadedStep]) -> None:
    """Write all files of a network except the host library into an existing folder."""
    (folder / "steps").mkdir()
    steps = []
    for number, step in enumerate(network.steps):
        plain = _step_to_json(step)
        if not isinstance(step, HostCall):
            plain |= _save_loaded(folder, f"steps/{number:03}", loaded[step.result])
        steps.append(plain)
    plain = {"schema": SCHEMA, "inputs": list(network.inputs), "outputs": list(network.outputs), "steps": steps}
    (folder / "network.json").write_text(document_text(plain), encoding="utf-8")


@dataclass(frozen=True)
class BuiltNetwork:
    """A network loaded from a build, with the simulated accelerator and the host functions to run it."""

    network: QuantizedNetwork
    hardware: SimulatedAccelerator
    host: Host

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Load the files of `save_network` and the host library; raise BuildError if they are missing or broken."""
        network, loaded = _read_network(folder)
        return cls(network, SimulatedAccelerator(loaded), host_of(folder / HOST_LIBRARY))

    def run(self, inputs: Sequence[NDArray[Any]], accelerator: StepRunner | None = None) -> Mapping[str, Value]:
        """Run the network on the simulated hardware, or on another step runner, and return all values."""
        return run_quantized(self.network, inputs, self.host, accelerator or self.hardware)

    def outputs(self, values: Mapping[str, Value]) -> list[NDArray[Any]]:
        """Return the outputs of the network from the values of a run."""
        return [float_of(values[name]) for name in self.network.outputs]


def load_programs(folder: Path) -> dict[str, Program]:
    """Return the program of each accelerator step, by name; raise BuildError if the build is broken."""
    network, loaded = _read_network(folder)
    return {step.name: loaded[step.result].program for step in network.accelerated}


def _read_network(folder: Path) -> tuple[QuantizedNetwork, dict[str, LoadedStep]]:
    """Read the network in a folder, and the program and constants of each accelerator step."""
    try:
        plain = json.loads((folder / "network.json").read_text(encoding="utf-8"))
        if plain["schema"] != SCHEMA:
            raise BuildError(f"{folder}: found schema {plain['schema']}; this Anole reads {SCHEMA}")
        loaded: dict[str, LoadedStep] = {}
        steps = [_load_step(folder, step, loaded) for step in plain["steps"]]
        return QuantizedNetwork(tuple(plain["inputs"]), tuple(plain["outputs"]), tuple(steps)), loaded
    except (OSError, EOFError, BadZipFile, ValueError, LookupError, TypeError, StreamError) as error:
        raise BuildError(f"{folder}: is not a build for vta: {type(error).__name__}: {error}") from error


def host_of(library: Path) -> Host:
    """Return a caller of the functions in a host library, which may be missing; raise BuildError if it is broken."""
    if not library.exists():
        return _reject_host_call
    import tvm
    from tvm.runtime.vm import VirtualMachine

    try:
        machine = VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())
    except Exception as error:
        raise BuildError(f"{library}: cannot be loaded: {error}") from error

    def call(function: str, arguments: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        results = machine[function](*(tvm.runtime.tensor(np.ascontiguousarray(array)) for array in arguments))
        return [result.numpy() for result in results]

    return call


def _reject_host_call(function: str, arguments: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
    raise BuildError(f"there is no library with the host function {function}")


def _step_to_json(step: NetworkStep) -> dict[str, Any]:
    kind = next(name for name, cls in _KINDS.items() if isinstance(step, cls))
    plain = {name: value for name, value in vars(step).items() if name not in _ARRAYS}
    if isinstance(step, AcceleratorLayer):
        plain |= {"workload": workload_to_json(step.workload), "config": dict(step.config)}
    return {"kind": kind, **plain}


def _save_loaded(folder: Path, name: str, loaded: LoadedStep) -> dict[str, Any]:
    """Write a program and its constants, and return their entry in network.json."""
    program = loaded.program
    (folder / f"{name}.stream").write_bytes(encode_stream(program.instructions, program.geometry))
    uops = np.array([encode_uop(uop, program.geometry) for uop in program.uops], dtype="<u4")
    np.savez(folder / f"{name}.npz", allow_pickle=False, uop=uops, **loaded.constants)
    return {
        "geometry": program.geometry.to_json(),
        "stream": f"{name}.stream",
        "constants": f"{name}.npz",
        "regions": {name: asdict(region) for name, region in program.regions.items()},
    }


def _load_step(folder: Path, plain: Mapping[str, Any], loaded: dict[str, LoadedStep]) -> NetworkStep:
    cls = _KINDS[plain["kind"]]
    fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in plain.items()
        if name in cls.__dataclass_fields__
    }
    if cls is HostCall:
        return HostCall(**fields)
    loaded_step = loaded[fields["result"]] = _load_program(folder, plain)
    if cls is Pool:
        return Pool(**fields)
    workload: Any = workload_from_json(fields["workload"])
    weight = unpack_weight(loaded_step.constants["weight"])[:, :, : workload.in_channels, : workload.out_channels]
    bias = loaded_step.constants["bias"][:, 0].reshape(-1)[: workload.out_channels]
    return AcceleratorLayer(**{**fields, "workload": workload, "weight": weight, "bias": bias})


def _load_program(folder: Path, plain: Mapping[str, Any]) -> LoadedStep:
    geometry = Geometry.from_json(plain["geometry"])
    instructions = decode_stream((folder / plain["stream"]).read_bytes(), geometry)
    with np.load(folder / plain["constants"]) as arrays:
        constants = dict(arrays)
    columns = decode_uop(constants.pop("uop").astype(np.int64), geometry)
    uops = tuple(Uop(*map(int, row)) for row in zip(*columns, strict=True))
    regions = {name: Region(**region) for name, region in plain["regions"].items()}
    return LoadedStep(Program(geometry, instructions, uops, regions), constants)

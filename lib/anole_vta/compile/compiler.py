"""Compile a network for an accelerator: an integer network, its programs, and a library for the host."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import tvm

from anole.codec import encode
from anole.compiler.folder import write_library
from anole.compiler.lower import Choice, lower
from anole.compiler.network_compiler import Compiled, MatchedNetwork
from anole.config.entries import ModelSpec
from anole.errors import BuildError, cause
from anole.extract.graph import find_layers, workloads_of
from anole.extract.samples import read_samples
from anole.record import Config
from anole.targets import get_device
from anole.targets.cpu.settings import describe_cpu
from anole.task import Workload
from anole_vta.area import relative_area, relative_memory
from anole_vta.compile.common_geometry import choose_geometry
from anole_vta.compile.partition import Partition, Partitioner
from anole_vta.compile.quantize import observe, quantize, snr_db
from anole_vta.geometry import Geometry
from anole_vta.network.artifact import HOST_LIBRARY, host_of, save_network
from anole_vta.network.network import AcceleratorLayer, IntegerReference, QuantizedNetwork, float_of, run_quantized
from anole_vta.network.simulated_accelerator import LoadedStep, can_add, load_step
from anole_vta.section import Accelerator, AcceleratorStep
from anole_vta.simulator.timing import cycles_of, is_extrapolated
from anole_vta.target import VtaTarget, as_conv2d
from anole_vta.templates.design import can_run
from anole_vta.templates.program import Program

_log = logging.getLogger(__name__)


def compile_for_vta(network: MatchedNetwork, target: VtaTarget, folder: Path) -> Compiled:
    """Quantize and lower a network, and write its programs and the host's library; see `NetworkCompiler`."""
    model, imported = network.model, network.imported
    choice = choose_geometry(target, network.matches, network.receipts)
    configs: dict[Workload, Config] = {
        match.task.workload: match.config for match in choice.matches if match.config is not None
    }
    vta = target.with_geometry(choice.geometry)
    partition = Partitioner(
        imported.module["main"],
        [layer.name for layer in find_layers(imported)],
        lambda workload, position: workload in configs and target.takes(workload, position),
        lambda workload: can_add(as_conv2d(workload), configs[workload], vta.geometry),
        lambda pool, shape: can_run(lambda: load_step(pool, vta.geometry, shape)),
    ).split()
    _export_host(model, partition, folder / HOST_LIBRARY)
    host = host_of(folder / HOST_LIBRARY)
    samples = read_samples(model, imported.inputs)
    values = observe(partition, samples, host)
    integers = quantize(partition, values, configs.__getitem__)
    loaded_steps = {
        step.result: load_step(step, vta.geometry, values[step.data].shape[1:]) for step in integers.accelerated
    }
    save_network(folder, integers, loaded_steps)
    runs = [run_quantized(integers, sample, host, IntegerReference()) for sample in samples]
    steps = tuple(
        AcceleratorStep(step.name, step.result, len(program.instructions), _cycles(program))
        for step in integers.accelerated
        for program in [loaded_steps[step.result].program]
    )
    cycles = sum(step.cycles for step in steps)
    accelerator = Accelerator(
        geometry=vta.geometry.to_json(),
        area=relative_area(vta.geometry),
        memory=relative_memory(vta.geometry),
        frequency_mhz=target.description["frequency_mhz"],
        samples=len(samples),
        steps=steps,
        cycles=cycles,
        latency_s=cycles / vta.frequency_hz,
        untuned_latency_s=_untuned_cycles(integers, loaded_steps, vta) / vta.frequency_hz,
        snr_db={
            name: snr_db(values[name], np.stack([float_of(run[name]) for run in runs]))
            for name in dict.fromkeys([*loaded_steps, *integers.outputs])
        },
        candidates=choice.candidates,
        per_layer_latency_s=choice.per_layer_latency_s,
    )
    _report(model.name, accelerator)
    return Compiled(choice.matches, accelerator=encode(accelerator))


def _export_host(model: ModelSpec, partition: Partition, library: Path) -> None:
    """Compile all host functions into a library; without functions, write no file."""
    if not partition.host.functions_items():
        return
    device = get_device(describe_cpu())
    choices = {
        workload: Choice(device.template(workload), device.default_config(workload))
        for workload in workloads_of(partition.host)
    }
    try:
        lowered, _ = lower(partition.host, choices, device.schedule_default)
        executable = tvm.compile(lowered, device.compiler_target(), tir_pipeline=device.compiler_pipeline())
    except Exception as error:
        raise BuildError(f"model {model.name}: TVM cannot compile the functions of the host: {cause(error)}") from error
    write_library(library, executable)


def _cycles(program: Program) -> int:
    return cycles_of(program.instructions, program.geometry)


def _untuned_cycles(network: QuantizedNetwork, loaded_steps: Mapping[str, LoadedStep], target: VtaTarget) -> int:
    """Return the total cycles if every layer had its default config.

    Where the default config has no room for a residual, the host would add the residual.
    """
    cycles = 0
    for step in network.accelerated:
        program = loaded_steps[step.result].program
        if isinstance(step, AcceleratorLayer):
            config = target.default_config(step.workload)
            residual = step.residual if can_add(step.workload, config, target.geometry) else None
            program = load_step(replace(step, config=config, residual=residual), target.geometry).program
        cycles += _cycles(program)
    return cycles


def _report(model: str, accelerator: Accelerator) -> None:
    for step in accelerator.steps:
        ratio = accelerator.snr_db[step.value]
        snr_text = "exact" if ratio is None else f"{ratio:.1f} dB"
        _log.info("%s: %s: %d cycles, signal to noise %s", model, step.name, step.cycles, snr_text)
    geometry = Geometry.from_json(accelerator.geometry)
    extrapolated = " (extrapolated)" if is_extrapolated(geometry) else ""
    _log.info(
        "%s: %d cycles%s on a block of %s and %d KiB of memory, %.2f ms at %g MHz",
        *(model, accelerator.cycles, extrapolated, "x".join(map(str, geometry.block))),
        *(geometry.sram_bits // 8192, 1e3 * accelerator.latency_s, accelerator.frequency_mhz),
    )

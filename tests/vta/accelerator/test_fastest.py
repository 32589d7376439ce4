"""The fastest program on each accelerator, against an exhaustive loop."""

import itertools

import numpy as np
import pytest

from anole.errors import ConfigError, StoreError
from anole_vta.accelerator.accesses import accesses_of
from anole_vta.accelerator.energy import unit_energies
from anole_vta.accelerator.fastest import fastest_programs
from anole_vta.geometry import DEFAULT
from anole_vta.target import VtaTarget
from anole_vta.templates.conv2d import lower_conv2d
from anole_vta.templates.design import EPILOGUE, design_of, hardware_config, pad_to_blocks

from .conftest import LAYER


def test_a_program_is_tried_once(task, trials):
    target = VtaTarget(task.target)
    designs = [design_of(LAYER, target.geometry, trial.config).program for trial in trials]
    assert len(set(designs)) == len(designs)


def test_the_fastest_program_matches_an_exhaustive_loop(task, trials):
    target = VtaTarget(task.target)
    found = fastest_programs(task, trials)
    software = {knob.name: knob.values for knob in target.space(LAYER).knobs if knob.agent != "hardware"}
    rng = np.random.default_rng(0)
    chosen = [DEFAULT, *(list(found)[at] for at in rng.choice(len(found), 20, replace=False))]
    for geometry in chosen:
        there = []
        for values in itertools.product(*software.values()):
            config = {**hardware_config(geometry), **dict(zip(software, values, strict=True))}
            try:
                design = design_of(LAYER, geometry, config)
                program = lower_conv2d(pad_to_blocks(LAYER, geometry), design.schedule, geometry, EPILOGUE)
            except ConfigError:
                continue
            there.append((target.cycles(LAYER, config), tuple(accesses_of(program).tolist())))
        min_cycles = min(cycles for cycles, _ in there)
        energies = unit_energies(geometry)
        joules = [energies.of(np.array(accesses), 0.0) for cycles, accesses in there if cycles == min_cycles]
        assert found[geometry].cycles == min_cycles
        assert energies.of(found[geometry].accesses, 0.0) == min(joules)


def test_every_accelerator_with_a_working_program_is_found(task, trials):
    space = VtaTarget(task.target).space(LAYER)
    columns = space.columns(space.vectors(space.all_valid_indices))
    hardware = {tuple(row) for row in np.stack([columns[name] for name in hardware_config(DEFAULT)], axis=1).tolist()}
    assert {tuple(hardware_config(geometry).values()) for geometry in fastest_programs(task, trials)} == hardware


def test_missing_programs_are_counted(task, trials):
    with pytest.raises(StoreError, match=r"conv2d 24->16 k3x3 s1 4x4: 2 programs not simulated yet"):
        fastest_programs(task, trials[:-2])
    with pytest.raises(StoreError, match=f"{len(trials)} programs"):
        fastest_programs(task, [])

"""One geometry for an entire network: lowest total within the bounds, and no layer slower than its default."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anole.compiler.matching import Match
from anole.documents.receipt import MeasuredConfig, Receipt
from anole.errors import BuildError
from anole.task import Conv2d, Task
from anole_vta.compile.common_geometry import choose_geometry
from anole_vta.geometry import Geometry
from anole_vta.settings import describe_vta
from anole_vta.target import VtaTarget

from ...examples import examples

SMALL = Conv2d(1, 8, 8, 32, 32, (1, 1))
LARGE = Conv2d(1, 8, 8, 32, 64, (3, 3), padding=(1, 1, 1, 1))


def make(**settings: Any) -> VtaTarget:
    return VtaTarget(describe_vta(hardware="search", **{"area_max": 50, "memory_max": 50, **settings}))


def block(target: VtaTarget, workload: Conv2d, ci: int = 16, co: int = 16, **changes: Any) -> dict[str, Any]:
    """Return the default config of a block."""
    return {**target.with_geometry(Geometry(1, ci, co)).default_config(workload), **changes}


def untuned_match(target: VtaTarget, workload: Conv2d) -> Match:
    plain = Match(Task(workload, target.description, 1), 1, (workload.label,), None, None)
    return plain.as_untuned("it was not tuned", target.default_config(workload))


def tune(
    target: VtaTarget, workload: Conv2d, *designs: tuple[dict[str, Any], float], weight: int = 1, locked: bool = False
) -> tuple[Match, Receipt]:
    """Return a layer with trials of some configs, and its receipt."""
    config, latency_s = min(designs, key=lambda design: design[1])
    task = Task(workload, target.description, 1)
    measured = tuple(MeasuredConfig(*each) for each in designs)
    return (
        Match(task, weight, (workload.label,), config, None, "r" * 64, latency_s, locked=locked),
        Receipt("d" * 64, "c" * 64, len(designs), config, latency_s, measured),
    )


def choose(target: VtaTarget, *layers: tuple[Match, Receipt]) -> Any:
    return choose_geometry(target, [match for match, _ in layers], {match.task.key: own for match, own in layers})


def test_a_fixed_geometry_is_the_only_one() -> None:
    target = VtaTarget(describe_vta({"block_in": 32}))
    default = target.default_config(SMALL)
    chosen = choose_geometry(target, [untuned_match(target, SMALL)], {})
    assert chosen.geometry == Geometry(block_in=32) and (chosen.candidates, chosen.per_layer_latency_s) == (None, None)
    (layer,) = chosen.matches
    assert (layer.config, layer.reason) == (default, "it was not tuned")
    assert layer.latency_s == target.simulate(SMALL, default)


def test_a_tuned_config_of_a_fixed_geometry_is_taken() -> None:
    target = VtaTarget(describe_vta())
    config = {**target.default_config(LARGE), "h_threading": 1, "oc_threading": 2, "tile_h": 4}
    (layer,) = choose(target, tune(target, LARGE, (config, 1e-9))).matches
    assert (layer.config, layer.latency_s, layer.reason, layer.run_key) == (config, 1e-9, None, "r" * 64)


def test_the_default_is_better_than_a_slow_trial() -> None:
    target = VtaTarget(describe_vta())
    default = target.default_config(SMALL)
    slow = {**default, "tile_h": 1, "tile_w": 1, "h_threading": 1, "oc_threading": 1}
    slow_s, default_s = (target.simulate(SMALL, config) for config in (slow, default))
    assert slow_s > default_s
    (layer,) = choose(target, tune(target, SMALL, (slow, slow_s))).matches
    assert (layer.config, layer.latency_s, layer.run_key) == (default, default_s, None)
    assert layer.reason == "no trial was faster than the default config"
    assert layer.built.matched == "default"


def test_all_layers_share_one_geometry() -> None:
    target = make()
    wide, tall = (32, 16), (16, 32)
    small = tune(target, SMALL, (block(target, SMALL, *wide), 1e-9), (block(target, SMALL, *tall), 3e-9))
    designs = [(block(target, LARGE, *wide), 5e-9), (block(target, LARGE, *tall), 4e-9)]
    chosen = choose(target, small, tune(target, LARGE, *designs))
    assert chosen.geometry == Geometry(1, *wide)
    assert [target.geometry_of(layer.config) for layer in chosen.matches] == [chosen.geometry] * 2
    assert [layer.latency_s for layer in chosen.matches] == [1e-9, 5e-9]
    assert chosen.per_layer_latency_s == pytest.approx(5e-9)
    totals_s = [candidate.latency_s for candidate in chosen.candidates]
    assert totals_s == sorted(totals_s) and totals_s[:2] == pytest.approx([6e-9, 7e-9])
    assert [candidate.block for candidate in chosen.candidates[:2]] == [(1, *wide), (1, *tall)]
    # Frequent layers weigh more.
    assert choose(target, small, tune(target, LARGE, *designs, weight=3)).geometry == Geometry(1, *tall)


def test_layers_that_were_tried_with_other_buffers_share_an_accelerator() -> None:
    """A config is simulated with the buffers of another layer's config, and still counts as tuned."""
    target, wide = make(memory_max=1.0), Conv2d(1, 14, 14, 128, 128, (1, 1))
    narrow = replace(wide, in_channels=64)
    better = {"tile_h": 7, "h_threading": 2, "oc_threading": 1}
    one, other = (
        block(target, workload, 32, 32, **better, log_acc_buff_size=log) for workload, log in ((narrow, 16), (wide, 17))
    )
    layers = [
        tune(target, workload, (config, target.simulate(workload, config)))
        for workload, config in ((narrow, one), (wide, other))
    ]
    chosen = choose(target, *layers)
    assert chosen.geometry in {target.geometry_of(one), target.geometry_of(other)}
    for layer, config in zip(chosen.matches, (one, other), strict=True):
        assert target.geometry_of(layer.config) == chosen.geometry and layer.run_key == "r" * 64
        assert {**layer.config, "log_acc_buff_size": 0} == {**config, "log_acc_buff_size": 0}
        assert layer.built.matched == "tuned"
        assert layer.latency_s == target.simulate(layer.task.workload, layer.config)


def test_of_many_accelerators_only_the_most_promising_are_simulated() -> None:
    target = make()
    sizes = [{"log_inp_buff_size": inp, "log_wgt_buff_size": wgt} for inp in range(11, 16) for wgt in range(13, 19)]
    designs = [(block(target, SMALL, 32, 32, **size), (2 + n) * 1e-9) for n, size in enumerate(sizes)]
    best = block(target, SMALL, 16, 32, tile_h=4)
    chosen = choose(target, tune(target, SMALL, *designs, (best, 1e-9)))
    assert chosen.geometry == target.geometry_of(best) and chosen.per_layer_latency_s == 1e-9
    assert len(chosen.candidates) == 16 < len(sizes)


def test_a_layer_that_was_not_tried_on_the_geometry_has_its_default_there() -> None:
    target = make()
    config = block(target, LARGE, 32, 32)
    chosen = choose(target, tune(target, LARGE, (config, 1e-9)), tune(target, SMALL, (block(target, SMALL), 1e-3)))
    assert chosen.geometry == Geometry(1, 32, 32)
    first, second = chosen.matches
    assert (first.config, first.reason) == (config, None)
    there = target.with_geometry(chosen.geometry)
    assert (second.config, second.reason) == (there.default_config(SMALL), "no trial had the network's geometry")
    assert second.latency_s == there.simulate(SMALL, second.config)


def test_no_geometry_within_the_bounds_is_an_error() -> None:
    target = make(area_max=0.5)
    config = block(target, LARGE, 32, 32)
    with pytest.raises(BuildError, match="none of the 2 tried geometries is within the bounds"):
        choose(target, tune(target, LARGE, (config, 1e-9)))


def test_a_geometry_on_which_a_layer_cannot_run_is_no_candidate() -> None:
    target = make()
    two = Conv2d(2, 8, 8, 32, 32, (1, 1))
    layers = [
        tune(target, SMALL, (block(target, SMALL), 1e-3)),
        tune(target, two, (block(target, SMALL, tile_b=2), 1e-9)),
    ]
    # One image does not fill a block of two.
    assert choose(target, layers[1]).geometry.batch == 2
    assert choose(target, *layers).geometry.batch == 1


def test_a_network_without_layers_has_the_given_geometry() -> None:
    for target in (make(), VtaTarget(describe_vta())):
        chosen = choose_geometry(target, [], {})
        assert (chosen.geometry, chosen.matches) == (Geometry(), [])
    assert choose_geometry(make(), [], {}).per_layer_latency_s == 0


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_no_other_geometry_within_the_bounds_has_a_smaller_total(data: Any) -> None:
    target = make(area_max=data.draw(st.sampled_from([1.1, 2.5, 50])))
    workloads = data.draw(st.lists(st.sampled_from([SMALL, LARGE]), min_size=1, max_size=2, unique=True))
    layers = []
    for workload in workloads:
        blocks = data.draw(st.lists(st.sampled_from([(16, 16), (32, 16), (16, 32), (32, 32)]), min_size=1, unique=True))
        seconds = st.integers(1, 400).map(lambda cycles: 50 * cycles / target.frequency_hz)
        designs = [(block(target, workload, *each), data.draw(seconds)) for each in blocks]
        layers.append(tune(target, workload, *designs, weight=data.draw(st.integers(1, 3))))
    chosen = choose(target, *layers)
    totals_s = {}
    for geometry in {target.geometry} | {target.geometry_of(d.config) for _, own in layers for d in own.designs}:
        if target.bounds.excess(geometry):
            continue
        there = target.with_geometry(geometry)
        totals_s[geometry] = sum(
            layer.weight
            * min(
                there.simulate(layer.task.workload, there.default_config(layer.task.workload)),
                *(d.latency_s for d in own.designs if target.geometry_of(d.config) == geometry),
                float("inf"),
            )
            for layer, own in layers
        )
    assert chosen.geometry in totals_s
    found_s = sum(layer.weight * layer.latency_s for layer in chosen.matches)
    assert found_s == pytest.approx(totals_s[chosen.geometry]) == pytest.approx(min(totals_s.values()))
    assert {target.geometry_of(layer.config) for layer in chosen.matches} == {chosen.geometry}
    assert chosen.per_layer_latency_s <= found_s * (1 + 1e-9)


def test_locked_layers_keep_geometry_and_config_even_if_slower() -> None:
    target = make()
    slow = {name: 1 for name in ("tile_h", "tile_w", "h_threading", "oc_threading")}
    designs = [(block(target, SMALL, 16, 32, **slow), 1e-9)]
    kept, _ = tune(target, SMALL, *designs, locked=True)
    _, faster = tune(target, SMALL, (block(target, SMALL, 32, 32), 1e-12))
    free = tune(target, LARGE, (block(target, LARGE, 32, 32), 1e-9))
    chosen = choose(target, (kept, faster), free)
    assert chosen.geometry == Geometry(1, 16, 32)
    first, second = chosen.matches
    assert (first.config, first.built.locked) == (kept.config, True)
    assert first.latency_s == target.with_geometry(chosen.geometry).simulate(SMALL, kept.config) > 1e-9
    assert target.geometry_of(second.config) == chosen.geometry

    other = tune(target, LARGE, (block(target, LARGE, 32, 16), 1e-9), locked=True)
    with pytest.raises(BuildError, match="none of the 2 tried geometries"):
        choose(target, (kept, faster), other)

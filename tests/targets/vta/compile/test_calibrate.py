"""Calibration: samples are read or refused, and a value's scale is the best power of two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from anole.declared.entries import ModelSpec
from anole.documents.build import TensorInfo
from anole.errors import BuildError
from anole.targets.vta.compile.calibrate import _max_pool, best_exponent, observe, read_samples, snr_db
from anole.targets.vta.compile.partition import Partitioner
from anole.targets.vta.network.integer import IntegerReference
from anole.targets.vta.network.network import MOST, Pool, numbers_of

X, MASK = TensorInfo("x", (1, 3, 4, 4), "float32"), TensorInfo("mask", (1, 4), "int64")
FLOATS = st.floats(-(2.0**20), 2.0**20, width=32, allow_subnormal=False)


def read(path: Path | None, *inputs: TensorInfo) -> Any:
    return read_samples(ModelSpec("net", "", calibration=None if path is None else str(path)), inputs or [X])


def test_without_a_file_samples_are_random_but_the_same_every_time() -> None:
    first, again = read(None, X, MASK), read(None, X, MASK)
    assert len(first) == len(again) == 4
    for sample, other in zip(first, again, strict=True):
        assert [(array.shape, str(array.dtype)) for array in sample] == [(X.shape, X.dtype), (MASK.shape, MASK.dtype)]
        assert all(np.array_equal(mine, theirs) for mine, theirs in zip(sample, other, strict=True))
        assert set(sample[1].ravel()) <= {0, 1}
    assert not np.array_equal(first[0][0], first[1][0])


@pytest.mark.parametrize("dtype", ["float64", "float32", "uint8", "bool"])
def test_an_array_holds_the_samples_of_the_only_input(tmp_path: Path, dtype: str) -> None:
    array = np.random.default_rng(0).integers(0, 2, (3, *X.shape)).astype(dtype)
    np.save(tmp_path / "samples.npy", array)
    samples = read(tmp_path / "samples.npy")
    assert [len(sample) for sample in samples] == [1, 1, 1]
    for sample, expected in zip(samples, array, strict=True):
        assert sample[0].dtype == np.float32
        np.testing.assert_array_equal(sample[0], expected)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_archive_holds_those_of_all_inputs_by_name(tmp_path: Path, save: Any) -> None:
    save(tmp_path / "samples.npz", x=np.ones((5, *X.shape)), mask=np.zeros((2, *MASK.shape)), other=np.ones(3))
    samples = read(tmp_path / "samples.npz", X, MASK)
    assert [[array.shape for array in sample] for sample in samples] == [[X.shape, MASK.shape]] * 2
    assert samples[0][1].dtype == np.int64


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"x": np.ones((2, 3, 4, 4))},
            r"found shape \(2, 3, 4, 4\) for input x; allowed is shape \(samples, 1, 3, 4",
        ),
        ({"x": np.ones((0, 1, 3, 4, 4))}, r"found shape \(0, 1, 3, 4, 4\) for input x; allowed is"),
        ({"x": np.ones(())}, r"found shape \(\) for input x"),
        ({"y": np.ones((2, 1, 3, 4, 4))}, "found none of that name for input x"),
        ({"x": np.full((2, 1, 3, 4, 4), np.nan)}, "input x: found values that are not finite numbers"),
        ({"x": np.full((2, 1, 3, 4, 4), np.inf)}, "input x: found values that are not finite numbers"),
        ({"x": np.full((2, 1, 3, 4, 4), "a")}, "input x: found values that are not finite numbers"),
    ],
)
def test_samples_that_do_not_fit_are_refused(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "samples.npz", **arrays)
    with pytest.raises(BuildError, match=message) as caught:
        read(tmp_path / "samples.npz")
    assert str(caught.value).startswith(str(tmp_path / "samples.npz")) and "\n" not in str(caught.value)


def test_an_array_for_two_inputs_lacks_one(tmp_path: Path) -> None:
    np.save(tmp_path / "samples.npy", np.ones((2, *X.shape)))
    with pytest.raises(BuildError, match="found none of that name for input mask"):
        read(tmp_path / "samples.npy", X, MASK)


@pytest.mark.parametrize("name", ["samples.npy", "samples.npz"])
@pytest.mark.parametrize("damage", [lambda _: b"", lambda _: b"text", lambda old: old[:200], lambda old: old[:-30]])
def test_a_broken_file_is_refused(tmp_path: Path, name: str, damage: Any) -> None:
    path = tmp_path / name
    array = np.ones((2, *X.shape))
    np.save(path, array) if name.endswith("y") else np.savez(path, x=array)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BuildError, match=rf"{name}: is neither \.npy nor \.npz: "):
        read(path)


def test_a_flipped_byte_of_an_archive_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "samples.npz"
    for save in (np.savez, np.savez_compressed):
        save(path, x=np.random.default_rng(0).standard_normal((2, *X.shape)))
        whole = path.read_bytes()
        path.write_bytes(whole[:400] + bytes([whole[400] ^ 0x55]) + whole[401:])
        with pytest.raises(BuildError, match=r"is neither \.npy nor \.npz: "):
            read(path)


def test_python_objects_are_not_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "samples.npy", np.array([object()]), allow_pickle=True)
    with pytest.raises(BuildError, match=r"is neither \.npy nor \.npz: "):
        read(tmp_path / "samples.npy")


def squared_error(values: Any, exponent: int) -> float:
    numbers = np.clip(np.rint(values.astype(np.float64) * 2.0**-exponent), -MOST, MOST)
    return float(np.square(numbers * 2.0**exponent - values).sum())


@given(arrays(np.float32, st.integers(1, 30), elements=FLOATS))
def test_no_other_power_of_two_that_is_tried_comes_closer(values: Any) -> None:
    exponent = best_exponent(values)
    largest = float(np.abs(values).max())
    if not largest:
        assert exponent == 0
        return
    coarsest = next(e for e in range(-200, 200) if largest <= MOST * 2.0**e)
    assert coarsest - 4 < exponent <= coarsest
    assert squared_error(values, exponent) <= min(
        squared_error(values, other) * (1 + 1e-9) + 1e-300 for other in range(coarsest - 3, coarsest + 1)
    )


@given(arrays(np.float32, st.integers(1, 30), elements=FLOATS), st.integers(-20, 20))
def test_scales_are_symmetric_and_move_with_the_values(values: Any, power: int) -> None:
    exponent = best_exponent(values)
    assert best_exponent(-values) == exponent
    if values.any():
        assert best_exponent(np.ldexp(values, power)) == exponent + power


@pytest.mark.parametrize(
    ("values", "exponent"), [([0.0], 0), ([127.0], 0), ([128.0], 1), ([1.0], -6), ([np.inf], 0), ([np.nan, 1], 0)]
)
def test_scales_of_simple_values(values: list[float], exponent: int) -> None:
    assert best_exponent(np.array(values, np.float32)) == exponent


def test_an_outlier_is_clipped_for_the_sake_of_all_others() -> None:
    many = np.linspace(-1, 1, 100_001, dtype=np.float32)
    assert best_exponent(many) == -7
    assert best_exponent(np.append(many, np.float32(2.1))) == -7
    assert best_exponent(np.append(many, np.float32(200))) > -7


def test_every_value_of_every_sample_is_kept(drawn: Any, interpreted: Any) -> None:
    net = drawn((1, 6, 6, 4))
    net.returns(net.scaled(net.max_pool(net.relu(net.conv(net.x, 5)))))
    parts = Partitioner(net.main, net.names, *[lambda *_: True] * 3).split()
    samples = [[np.full((1, 6, 6, 4), number, np.float32)] for number in (1, -2)]
    observed = observe(parts, samples, interpreted(parts.host))
    made = [name for part in parts.parts for name in getattr(part, "results", None) or [part.result]]
    assert list(observed) == ["input0", *made] and len(made) == 3
    assert all(len(array) == 2 and array.dtype == np.float32 for array in observed.values())
    assert observed["input0"][1].max() == -2


@given(data=st.data())
def test_pooling_is_the_same_in_floating_point(data: Any) -> None:
    kernel, stride = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    padding = tuple(data.draw(st.integers(0, kernel - 1)) for _ in range(4))
    numbers = data.draw(arrays(np.int8, (1, data.draw(st.integers(3, 7)), data.draw(st.integers(3, 7)), 2)))
    pool = Pool("pool", (kernel, kernel), (stride, stride), padding, "x", "y", 0)
    found = _max_pool(pool, numbers.astype(np.float32))
    np.testing.assert_array_equal(found, IntegerReference().pool(pool, numbers))


def test_signal_to_noise() -> None:
    signal = np.array([3.0, 4.0], np.float32)
    assert snr_db(signal, signal) is None
    assert snr_db(np.zeros(2), signal) is None
    assert snr_db(signal, np.array([3.5, 4])) == pytest.approx(20)
    assert snr_db(signal, signal * 1.1) == pytest.approx(20, abs=1e-3)
    assert snr_db(signal, np.array([np.nan, 4])) is None and snr_db(np.array([np.inf]), np.array([1.0])) is None


@given(arrays(np.float32, 200, elements=st.floats(-1, 1, width=32)))
def test_whole_numbers_of_the_best_scale_are_near(values: Any) -> None:
    exponent = best_exponent(values)
    found = np.ldexp(numbers_of(values, exponent).astype(np.float32), exponent)
    ratio = snr_db(values, found)
    # The coarsest scale errs by half a unit at most, of which the largest value has 64 or more.
    assert ratio is None or ratio > 20 * np.log10(128) - 10 * np.log10(200)

"""Calibration samples come from a file, or are random; files that do not fit are rejected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anole.config.entries import ModelSpec
from anole.documents.build import TensorInfo
from anole.errors import BuildError
from anole.extract.samples import read_samples

X, MASK = TensorInfo("x", (1, 3, 4, 4), "float32"), TensorInfo("mask", (1, 4), "int64")


def read(path: Path | None, *inputs: TensorInfo) -> Any:
    return read_samples(ModelSpec("net", "", samples=None if path is None else str(path)), inputs or [X])


def test_without_a_file_samples_are_random_and_reproducible() -> None:
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
def test_an_archive_holds_the_samples_of_all_inputs_by_name(tmp_path: Path, save: Any) -> None:
    save(tmp_path / "samples.npz", x=np.ones((5, *X.shape)), mask=np.zeros((2, *MASK.shape)), other=np.ones(3))
    samples = read(tmp_path / "samples.npz", X, MASK)
    assert [[array.shape for array in sample] for sample in samples] == [[X.shape, MASK.shape]] * 2
    assert samples[0][1].dtype == np.int64


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.ones((2, 3, 4, 4))}, r"found shape \(2, 3, 4, 4\) for input x; expected shape \(samples, 1, 3, 4"),
        ({"x": np.ones((0, 1, 3, 4, 4))}, r"found shape \(0, 1, 3, 4, 4\) for input x; expected shape"),
        ({"x": np.ones(())}, r"found shape \(\) for input x"),
        ({"y": np.ones((2, 1, 3, 4, 4))}, "found no array with its name for input x"),
        ({"x": np.full((2, 1, 3, 4, 4), np.nan)}, "input x: found values that are not finite numbers"),
        ({"x": np.full((2, 1, 3, 4, 4), np.inf)}, "input x: found values that are not finite numbers"),
        ({"x": np.full((2, 1, 3, 4, 4), "a")}, "input x: found values that are not finite numbers"),
    ],
)
def test_samples_that_do_not_fit_are_rejected(tmp_path: Path, arrays: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "samples.npz", **arrays)
    with pytest.raises(BuildError, match=message) as caught:
        read(tmp_path / "samples.npz")
    assert str(caught.value).startswith(str(tmp_path / "samples.npz")) and "\n" not in str(caught.value)


DAMAGES = [lambda _: b"", lambda _: b"text", lambda old: old[:200], lambda old: old[:-30]]


def flip(old: bytes) -> bytes:
    return old[:400] + bytes([old[400] ^ 0x55]) + old[401:]


@pytest.mark.parametrize(
    ("save", "name", "damage"),
    [
        *((np.save, "samples.npy", damage) for damage in DAMAGES),
        *((np.savez, "samples.npz", damage) for damage in (*DAMAGES, flip)),
        (np.savez_compressed, "samples.npz", flip),
    ],
)
def test_a_broken_file_is_rejected(tmp_path: Path, save: Any, name: str, damage: Any) -> None:
    path, array = tmp_path / name, np.random.default_rng(0).standard_normal((2, *X.shape))
    save(path, **{"arr" if save is np.save else "x": array})
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BuildError, match=rf"{name}: is neither \.npy nor \.npz: "):
        read(path)


def test_object_arrays_and_single_arrays_for_two_inputs_are_rejected(tmp_path: Path) -> None:
    np.save(tmp_path / "samples.npy", np.array([object()]), allow_pickle=True)
    with pytest.raises(BuildError, match=r"is neither \.npy nor \.npz: "):
        read(tmp_path / "samples.npy")
    np.save(tmp_path / "samples.npy", np.ones((2, *X.shape)))
    with pytest.raises(BuildError, match="found no array with its name for input mask"):
        read(tmp_path / "samples.npy", X, MASK)

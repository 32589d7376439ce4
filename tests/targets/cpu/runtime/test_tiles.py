"""Tile products: plain C rounds as Intel's manual specifies, and the AMX instructions, maybe emulated, do the same."""

from __future__ import annotations

import ctypes
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from anole.errors import MachineError
from anole.targets.cpu import runtime
from anole.targets.cpu.runtime import compile_tiles

from ....examples import examples

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86-64 has these tiles")

Array = NDArray[Any]
TYPES = {"uint8": (np.uint8, np.int8, np.int32, 4), "bfloat16": (ml_dtypes.bfloat16, ml_dtypes.bfloat16, np.float32, 2)}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    path, here = tmp_path_factory.mktemp("tiles") / "emulated.so", Path(__file__).with_name("emulated.c")
    options = ["-std=c11", "-O2", "-fPIC", "-Wall", "-Wextra", "-Werror", "-shared", "-DWITH_AMX"]
    sources = [f"-I{Path(runtime.__file__).parent}", str(here)]
    subprocess.run([runtime.find_compiler(), *options, *sources, "-o", str(path)], check=True)
    found = ctypes.CDLL(str(path))
    found.product.argtypes = [ctypes.c_bool, *[ctypes.c_void_p] * 3, ctypes.c_bool, *[ctypes.c_int64] * 12]
    found.product.restype = ctypes.c_int64
    return found


@dataclass(frozen=True)
class Product:
    """A product of tiles; distances are in packed 32-bit words."""

    dtype: str
    rows: int
    left: int
    row: int
    gap: int
    taps: tuple[int, int]
    tap: tuple[int, int]
    groups: int
    words: int
    columns: int
    seed: int

    @property
    def strips(self) -> int:
        return -(-self.left // self.rows)

    def operands(self) -> tuple[Array, Array]:
        """Return data with exactly the words that are read, and weights."""
        data_dtype, weight_dtype, _, numbers = TYPES[self.dtype]
        rng, last = np.random.default_rng(self.seed), int(self._read_words().max())
        shapes = ((last + 1, numbers), (*self.taps, self.groups, self.words, 16 * self.columns, numbers))
        if self.dtype == "uint8":
            values = (
                rng.integers(*limits, shape) for limits, shape in zip(((0, 256), (-128, 128)), shapes, strict=True)
            )
        else:
            values = (rng.standard_normal(shape, np.float32) for shape in shapes)
        data, weights = values
        return data.astype(data_dtype), weights.astype(weight_dtype)

    def _read_words(self) -> Array:
        """Return the words that each row reads, shape (rows, tap, tap, group, word)."""
        at = np.arange(self.left)
        first = at // self.rows * (self.rows * self.row + self.gap) + at % self.rows * self.row
        steps = (first, *(np.arange(n) * step for n, step in zip(self.taps, self.tap, strict=True)))
        steps = (*steps, np.arange(self.groups) * self.words, np.arange(self.words))
        return np.asarray(sum(np.ix_(*steps)))

    def expected(self, data: Array, weights: Array) -> Array:
        """Return the sums in the instructions' order: even and odd bfloat16 of a group are first summed separately."""
        left = data[self._read_words()].reshape(self.left, -1, self.words, 1, data.shape[-1])
        right = weights.reshape(-1, self.words, 16 * self.columns, data.shape[-1])
        if self.dtype == "uint8":
            return np.einsum("rgwkn,gwcn->rc", left.astype(np.int32), right.astype(np.int32))
        left, right = left.astype(np.float32), right.astype(np.float32)
        total = np.zeros((self.left, right.shape[2]), np.float32)
        for group in range(len(right)):
            parts = np.zeros((*total.shape, 2), np.float32)
            for word in range(self.words):
                parts += left[:, group, word] * right[group, word]
            total += parts[..., 0] + parts[..., 1]
        return total

    def found(self, library: ctypes.CDLL, in_tiles: bool, data: Array, weights: Array) -> Array:
        """Return the sums by one implementation, and check that it writes nothing else."""
        surplus = 2
        sums = np.full((self.strips, self.rows + surplus, 16 * self.columns), -7, TYPES[self.dtype][2])
        row, strip, (tap_y, tap_x) = self.row, self.rows * self.row + self.gap, self.tap
        sizes = (self.rows, self.left, self.rows + surplus, row, strip, self.taps[0], tap_y, self.taps[1], tap_x)
        pointers = [array.ctypes.data for array in (sums, data, weights)]
        sizes = (*sizes, self.groups, self.words, 16 * self.columns)
        emulated = library.product(in_tiles, *pointers, self.dtype == "uint8", *sizes)
        assert emulated >= 0 and (in_tiles or not emulated)
        written = np.arange(self.strips * self.rows).reshape(self.strips, -1) < self.left
        assert (sums[:, self.rows :] == -7).all() and (sums[:, : self.rows][~written] == -7).all()
        return sums[:, : self.rows][written]


sizes = st.integers(1, 3)
products = st.builds(
    Product,
    dtype=st.sampled_from(list(TYPES)),
    rows=st.integers(1, 16),
    left=st.integers(1, 50),
    row=st.integers(1, 20),
    gap=st.integers(0, 5),
    taps=st.tuples(sizes, sizes),
    tap=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    groups=sizes,
    words=st.integers(1, 16),
    columns=st.integers(1, 6),
    seed=st.integers(0, 1 << 30),
)


@settings(max_examples=examples(200), deadline=None)
@given(product=products)
def test_both_implementations_sum_in_the_order_of_the_manual(library: ctypes.CDLL, product: Product) -> None:
    data, weights = product.operands()
    expected = product.expected(data, weights)
    for in_tiles in (False, True):
        np.testing.assert_array_equal(product.found(library, in_tiles, data, weights), expected)


def test_sums_of_bytes_are_exact_up_to_the_limits(library: ctypes.CDLL) -> None:
    product = Product("uint8", 16, 32, 64, 0, (1, 16), (0, 64), 4, 16, 2, seed=0)
    data, weights = (np.full_like(array, value) for array, value in zip(product.operands(), (255, -128), strict=True))
    for in_tiles in (False, True):
        assert (product.found(library, in_tiles, data, weights) == 255 * -128 * 16 * 64 * 4).all()


@pytest.mark.parametrize("exponent", [-118, -122, -126, -132])
def test_subnormal_values_are_flushed_to_zero(library: ctypes.CDLL, exponent: int) -> None:
    product = Product("bfloat16", 12, 30, 16, 0, (1, 2), (0, 3), 2, 8, 3, seed=0)
    data, weights = product.operands()
    weights = np.round(4 * weights.astype(np.float32)).astype(weights.dtype) / weights.dtype.type(4)
    data = np.ldexp(data.astype(np.float32), exponent).astype(data.dtype)
    plain, in_tiles = (product.found(library, each, data, weights) for each in (False, True))
    np.testing.assert_array_equal(plain.view(np.int32), in_tiles.view(np.int32))
    tiny = np.finfo(np.float32).tiny
    assert (plain == 0).any() and ((plain == 0) | (abs(plain) >= tiny)).all()
    assert (abs(product.expected(data, weights)) < tiny).any()


def test_a_compiler_without_amx_omits_the_tile_instructions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text(f'#!/bin/sh\ncase "$*" in *WITH_AMX*) exit 1;; esac\nexec {runtime.find_compiler()} "$@"\n')
    compiler.chmod(0o755)
    folders = [tmp_path / name for name in ("without", "with", "none")]
    for folder in folders:
        folder.mkdir()
    has_tiles = b"xgetbv" in _assembly(compile_tiles(folders[1]))
    monkeypatch.setattr(runtime, "find_compiler", lambda: str(compiler))
    assert has_tiles and b"xgetbv" not in _assembly(compile_tiles(folders[0]))
    monkeypatch.undo()
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MachineError, match="a C compiler is required"):
        compile_tiles(folders[2])


def _assembly(path: Path) -> bytes:
    return subprocess.run(["objdump", "-d", str(path)], check=True, capture_output=True).stdout

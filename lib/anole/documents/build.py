"""The description of a build: ``build.json`` in its folder."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from anole.codec import LATER
from anole.config.entries import ModelSpec
from anole.documents.document import decode_document, read_object, serialize
from anole.documents.receipt import TriedConfig
from anole.errors import DocumentError
from anole.ir.ranges import SizeRange
from anole.keys import Key, Time
from anole.record import Config
from anole.targets import kind_of

FILE = "build.json"
"""The description's name in the folder of a build."""


@dataclass(frozen=True)
class TensorInfo:
    """One input or output of a model.

    Attributes:
        shape: the extents; typical sizes for variable extents.
        varying: for each extent, an expression in the names of ranges, such as ``2 * batch``, or None if fixed;
            None for a fixed shape.
        indexed: the size of the smallest table that an integer input indexes; None if it indexes none.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    varying: Annotated[tuple[str | None, ...] | None, LATER] = None
    indexed: Annotated[int | None, LATER] = None


@dataclass(frozen=True)
class Coverage:
    """The share of a build's work that is tuned, in floating-point operations."""

    tuned_flop: int
    total_flop: int
    share: float


@dataclass(frozen=True)
class BuiltTask:
    """A task of a build, with the config that it was compiled with.

    Attributes:
        config: None if the config could not be scheduled in at least one layer, which has a default schedule instead.
            The config is then in `unscheduled`, and may still be used in other layers.
        matched: ``tuned`` or ``default``.
        run_key: the run that found the config; None if the task is not tuned.
        latency_s: measured seconds of one call.
        refined: the configs that were tried within the network.
        locked: True if the config comes from the lock file, otherwise None.
    """

    key: Key
    label: str
    flop: int
    weight: int
    layers: tuple[str, ...]
    config: Config | None = field(hash=False)
    matched: str
    run_key: Key | None
    latency_s: float | None
    reason: str | None
    refined: Annotated[tuple[TriedConfig, ...], LATER] = ()
    unscheduled: Annotated[Config | None, LATER] = field(default=None, hash=False)
    locked: Annotated[bool | None, LATER] = None


@dataclass(frozen=True)
class BuiltKernel:
    """A kernel of a compiled network.

    Attributes:
        task: the key of the kernel's task; None for a kernel without a tuned operator.
        calls: number of calls in one run of the network.
        flop: floating-point operations of one call.
        size_bytes: bytes of the kernel's inputs and outputs.
        dtype: the low-precision type that the kernel multiplies; None for float32.
        weights: the storage type of the weights, if it has fewer bits than `dtype`.
    """

    name: str
    calls: int
    task: Key | None
    layers: tuple[str, ...]
    flop: int
    size_bytes: int
    dtype: Annotated[str | None, LATER] = None
    weights: Annotated[str | None, LATER] = None


@dataclass(frozen=True)
class Build:
    """The description of a compiled network, with its names and entry in models.yaml.

    Attributes:
        trials: the budget of each task or, if shared, of all tasks together.
        runs_on: the device's name in TVM's runtime, such as ``cpu``; None for a simulated accelerator.
        threads: number of CPU threads that run or launch kernels.
        kernels: in the order of their first call; None if unknown.
        accelerator: facts about the simulated hardware, at least the seconds of one run (``latency_s``); the kind of
            target defines the rest.
        size_bytes: total size of the files in the folder, without ``build.json``.
        sha256: SHA-256 of each file that the network is loaded from, by its path in the folder; None for builds of
            older versions. Compiling again with the same configs and versions gives the same values.
        lock: the content key of the build's entry in the lock file; None without an entry.
        ranges: the sizes that the build serves, by the name of the dimension; None for a build with fixed sizes.
        sizes: the sizes of the inputs in a description made by `at`; None in every file.
    """

    name: str
    model: str
    entry: Mapping[str, Any] = field(hash=False)
    target: str
    target_description: Mapping[str, Any] = field(hash=False)
    preset: str
    trials: int
    shared: Annotated[bool, LATER] = field(default=False, kw_only=True)
    seed: int
    created_at: Time
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    coverage: Coverage
    tasks: tuple[BuiltTask, ...]
    versions: Mapping[str, str] = field(hash=False)
    runs_on: str | None = None
    threads: int | None = None
    memory: Mapping[str, int] | None = field(default=None, hash=False)
    kernels: tuple[BuiltKernel, ...] | None = None
    accelerator: Mapping[str, Any] | None = field(default=None, hash=False)
    size_bytes: int | None = None
    sha256: Annotated[Mapping[str, str] | None, LATER] = field(default=None, hash=False)
    lock: Annotated[Key | None, LATER] = None
    ranges: Annotated[Mapping[str, SizeRange] | None, LATER] = field(default=None, hash=False)
    sizes: Annotated[Mapping[str, int] | None, LATER] = field(default=None, hash=False)

    def at(self, sizes: Mapping[str, int]) -> Build:
        """Return the description of a build for ranges at the given sizes."""
        inputs = tuple(
            replace(info, shape=tuple(map(partial(_extent, sizes), info.varying, info.shape))) if info.varying else info
            for info in self.inputs
        )
        name = f"{self.name} at {', '.join(f'{symbol} {size}' for symbol, size in sizes.items())}"
        return replace(self, name=name, inputs=inputs, sizes=sizes)

    @property
    def model_spec(self) -> ModelSpec:
        """The model as models.yaml described it."""
        return ModelSpec.from_json(self.model, self.entry).at(self.sizes or {})

    @property
    def precision(self) -> str:
        """The types that the build multiplies, and the types of low-precision weights, as text."""
        names = kind_of(self.target_description).precision_names
        dtypes = {kernel.dtype for kernel in self.kernels or () if kernel.dtype} or {"float32"}
        text = " and ".join(sorted(names.get(dtype, dtype) for dtype in dtypes))
        weights = sorted({kernel.weights for kernel in self.kernels or () if kernel.weights})
        return text + (f", weights in {' and '.join(weights)}" if weights else "")


def _extent(sizes: Mapping[str, int], symbol: str | None, extent: int) -> int:
    return extent if symbol is None else sizes[symbol]


def read_build(folder: Path) -> Build:
    """Read the description of the build in a folder; raise DocumentError if it is missing or broken."""
    path = folder / FILE
    plain = read_object(path, "compile")
    ranges = plain.get("ranges")
    for sizes in ranges.values() if isinstance(ranges, dict) else ():
        if isinstance(sizes, dict) and {"least", "most"} <= sizes.keys():  # the names before Anole 0.7.1
            sizes |= {"min": sizes.pop("least"), "max": sizes.pop("most")}
    return decode_document(plain, Build, path, "compile")


def write_build(folder: Path, build: Build) -> None:
    """Write the description of a build into its new folder."""
    (folder / FILE).write_text(serialize(build), encoding="utf-8")


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file in a folder, by its relative path."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): _sha256(path) for path in paths}


def check_build_files(folder: Path, build: Build) -> None:
    """Raise DocumentError for a build whose files do not match its description.

    Results of such files would be attributed to the wrong configs. Torch models with several inputs built before
    Anole 0.7.1 are also rejected, because the inputs may be in alphabetical order instead of the network's.
    """
    inputs = build.entry.get("inputs")
    if isinstance(inputs, Mapping) and len(inputs) > 1 and build.model_spec.scheme != "onnx":
        problem = f"was compiled before Anole 0.7.1, which may have swapped its inputs {', '.join(inputs)}"
        raise DocumentError(folder, problem, "compile")
    for name, expected in (build.sha256 or {}).items():
        path = folder / name
        try:
            actual = _sha256(path)
        except OSError as error:
            raise DocumentError(path, f"cannot be read: {error.strerror}", "compile") from error
        if actual != expected:
            problem = f"is not the file that {FILE} describes: its SHA-256 is {actual[:12]}..., not {expected[:12]}..."
            raise DocumentError(path, problem, "compile")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

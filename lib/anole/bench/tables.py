"""The recorded problems in this package, and loading of problems by name or file.

A problem's name is its family and the layer. The families: layers on a processor (``cpu``), a published kernel on a GPU
(``gpu``), layers on a simulated accelerator with VTA's buffers (``vta``), and layers with searched buffers, in a space
of configs that can run (``vta_constrained``) and of all (``vta_open``).
"""

from __future__ import annotations

import csv
import io
import json
import lzma
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.bench.problem import Problem, enlarge, valid_indices
from anole.bench.spaces import make_space, restrict_to
from anole.bench.t4 import read_t4
from anole.errors import StoreError, suggestion
from anole.space.space import Space
from anole.targets import get_target
from anole.task import Conv2d

FOLDER = Path(__file__).parent / "tables"

_FAMILIES = {"cpu": "cpu", "gpu": "gpu", "vta": "vta", "vta_constrained": "vta_buffers", "vta_open": "vta_buffers"}
"""The families of problems, and the folder of each family's tables."""


def splits() -> dict[str, dict[str, str]]:
    """Return the SHA-256 digest of each table's file in the development split ``dev`` and in the split ``test``."""
    return dict(json.loads((FOLDER / "splits.json").read_text(encoding="utf-8")))


def files(family: str, split: str | None = None) -> dict[str, Path]:
    """Return the file of each problem of a family, by the name of its layer."""
    paths = sorted(FOLDER.glob(f"{_FAMILIES.get(family, 'none')}/*"))
    chosen = paths if split is None else [FOLDER / name for name in splits()[split]]
    return {path.name.split(".")[0]: path for path in paths if path in chosen}


def names(split: str | None = None) -> list[str]:
    """Return the names of all problems, or of those in a split."""
    return [f"{family}/{name}" for family in _FAMILIES for name in files(family, split)]


def load(name: str | Path) -> Problem:
    """Return a problem by its name, or read one from a T4 file or a cache file of Kernel Tuner.

    Raises:
        StoreError: there is no such problem or file, or the template's space has changed since it was recorded.
    """
    path = find(name)
    return _load(str(name)) if FOLDER in path.parents else read_t4(path)


def find(name: str | Path) -> Path:
    """Return the file of a problem; raise StoreError if there is none."""
    family, _, layer = str(name).partition("/")
    path = files(family).get(layer, Path(name))
    if not path.is_file():
        raise StoreError(f"{name}: there is no such problem or file; {suggestion(str(name), names())}")
    return path


@cache
def _load(name: str) -> Problem:
    family, _, layer = name.partition("/")
    path = files(family)[layer]
    if family == "gpu":
        return _read_published(name, path)
    if _FAMILIES[family] == family:
        return read_table(path, name)
    if family == "vta_constrained":
        return _read_programs(name, path)
    target, workload = _decode_layer(layer)
    return enlarge(_load(f"vta_constrained/{layer}"), name, get_target({**target, "space": "open"}).space(workload))


def read_table(path: Path, name: str = "") -> Problem:
    """Read a table of ``benchmarks/search/record.py``.

    Raises:
        StoreError: the file is not a table, or the template's space has changed since.
    """
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        workload = _conv2d(plain["workload"])
        space = get_target(plain["target"]).space(workload).restrict(plain["restriction"])
        latencies_s = np.array(plain["latency_us"], dtype=np.float64) / 1e6
        recorded = list(plain["cardinalities"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: is not a table ({type(error).__name__}: {error})") from error
    actual, expected = (recorded, len(latencies_s)), (space.cardinalities.tolist(), len(valid_indices(space)))
    if actual != expected:
        raise StoreError(
            f"{path}: was recorded on a space of cardinalities {actual[0]} with {actual[1]} valid configs; "
            f"{workload.label} now has {expected[0]} and {expected[1]}; record it again"
        )
    return Problem(name or path.stem, space, latencies_s, workload)


def _read_published(name: str, path: Path) -> Problem:
    """Read a table with knobs, a bit for each tried config, and the latencies of these configs."""
    plain = json.loads(path.read_text(encoding="utf-8"))
    full = make_space(plain["knobs"])
    bits = np.frombuffer(bytes.fromhex(plain["tried"]), dtype=np.uint8)
    space = restrict_to(full, "its authors did not try it", np.unpackbits(bits, count=full.size).astype(bool))
    return Problem(name, space, np.array(plain["latency_us"], dtype=np.float64) / 1e6, _conv2d(plain["workload"]))


def _read_programs(name: str, path: Path) -> Problem:
    """Read a table with the cycles of each program, which many configs share."""
    rows = list(csv.reader(io.StringIO(lzma.decompress(path.read_bytes()).decode())))[1:]
    recorded = np.array([row[:-1] for row in rows], dtype=np.int64)
    cycles = np.array([row[-1] or "nan" for row in rows], dtype=np.float64)
    target, workload = _decode_layer(name.partition("/")[2])
    space = replace(get_target(target).space(workload), is_enumerated=True)
    programs, _, of_each = distinct_programs(space)
    if not np.array_equal(recorded, programs):
        raise StoreError(f"{path}: was simulated with other programs than the template has now; remove it")
    return Problem(name, space, (cycles / (1e6 * target["frequency_mhz"]))[of_each], workload)


def distinct_programs(space: Space) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the sorted rows of `Space.outcomes`, a config index for each, and the row index of each valid config."""
    _, first, of_each = np.unique(space.all_identities, return_index=True, return_inverse=True)
    indices = space.all_valid_indices[first]
    rows = space.outcomes(space.vectors(indices))
    order = np.lexsort(rows.T[::-1])
    return rows[order], indices[order], np.argsort(order)[of_each]


def _decode_layer(layer: str) -> tuple[dict[str, Any], Conv2d]:
    """Return the target and the workload of a table with searched buffers."""
    plain = json.loads((FOLDER / "vta_buffers.json").read_text(encoding="utf-8"))
    return plain["target"], _conv2d(plain["workloads"][layer])


def _conv2d(plain: Mapping[str, Any]) -> Conv2d:
    tuples: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in plain.items()}
    return Conv2d(**tuples)

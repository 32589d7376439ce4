"""What several tests share: spaces whose latencies a formula gives, and a build for the accelerator."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from anole.documents.build import Build
from anole.documents.receipt import Receipts
from anole.record import Config, Measurement, Status
from anole.search.roles import History
from anole.space import ALGORITHM, Constraint, Space, option_knob, split_knob, union

from .tiny_builds import build_tiny

# The same examples in every run, so that only a change of the code can break a build; `make fuzz` looks for new ones.
settings.register_profile("same", derandomize=True)
settings.register_profile("new", print_blob=True)
settings.load_profile("same")

# Read when torch comes in: its threads sleep when idle, instead of taking the cores from the other workers' tests.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_LONGEST = ("workflow", "search")
"""Folders whose files begin first, so that no worker is at a long one when the others have nothing left."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    folder = Path(__file__).parent
    items.sort(key=lambda item: item.path.relative_to(folder).parts[0] not in _LONGEST)


@pytest.fixture(scope="session", autouse=True)
def own_locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Puts this worker's locks on devices into a folder of its own, for whoever holds a lock stops all others."""
    tmp_path_factory.getbasetemp()  # where it has always been
    with (
        tempfile.TemporaryDirectory(prefix="anole-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as monkeypatch,
    ):
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Makes a folder and fills it, once for all workers: the first that asks for it does, and the others wait."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def filled(name: str, fill: Callable[[Path], object]) -> Path:
        folder, done = shared / name, shared / f"{name}.done"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                folder.mkdir()
                fill(folder)
                done.touch()
        return folder

    return filled


@pytest.fixture(scope="session")
def tiny_project(once: Callable[..., Path]) -> Path:
    """A project in whose folder ``net`` a residual network is built for the processor, untuned, at batch 2."""
    return once("tiny", lambda folder: build_tiny(folder, 2, 3, 32, 32))


@dataclass
class Formula:
    """A space and what its configs cost.

    Attributes:
        cost_s: from columns to latencies in seconds, shape (n,); NaN is a config that fails.
        asked: every config that was measured, in order.
    """

    space: Space
    cost_s: Callable[[Any], Any]
    flop: int = 10**9
    asked: list[Config] = field(default_factory=list)

    def measurements(self, vectors: Any) -> list[Measurement]:
        costs_s = self.cost_s(self.space.columns(vectors))
        return [
            Measurement(Status.RUN_ERROR, error="no result")
            if np.isnan(cost_s)
            else Measurement(Status.OK, latency_s=cost_s)
            for cost_s in map(float, costs_s)
        ]

    def measure(self, configs: Sequence[Config]) -> Iterator[Measurement]:
        for config in configs:
            self.asked.append(config)
            yield self.measurements(self.space.vector(config)[None])[0]

    def history(self, n: int, seed: int = 0) -> History:
        """Returns a history of n random configs."""
        history = History(self.space, self.flop)
        vectors = self.space.sample(n, np.random.default_rng(seed))
        history.add(vectors, self.measurements(vectors))
        return history

    @property
    def optimum_s(self) -> float:
        """The least latency of the space, by asking for all of them."""
        vectors = self.space.vectors(self.space.valid_indices)
        return float(np.nanmin(self.cost_s(self.space.columns(vectors))))


def bowl(extent_f: int = 128, extent_x: int = 56) -> Formula:
    """Returns a tiling formula with one optimum, interacting knobs, invalid configs and configs that fail."""
    space = Space(
        [
            split_knob("tile_f", extent_f, 4),
            split_knob("tile_x", extent_x, 4),
            split_knob("tile_rc", 64, 2),
            option_knob("order", ["channels_first", "kernel_first", "mixed"]),
            option_knob("unroll", [0, 64, 512]),
        ],
        [Constraint("the tile is too large", lambda c: c["tile_f"][:, 3] * c["tile_x"][:, 3] <= 128)],
    )

    def cost_s(columns: Any) -> Any:
        f, x, rc = (np.log2(columns[name]) for name in ("tile_f", "tile_x", "tile_rc"))
        cost = 1 + 0.1 * (f[:, 3] + x[:, 3] - 6) ** 2 + 0.05 * (f[:, 3] - 4) ** 2 + 0.05 * (f[:, 1] - x[:, 1]) ** 2
        cost += 0.05 * (rc[:, 1] - 3) ** 2 + 0.02 * f[:, 0] + 0.02 * x[:, 2]
        cost += 0.2 * (columns["order"] != "kernel_first") + 0.1 * (columns["unroll"] == 512)
        fails = (columns["unroll"] == 512) & (columns["tile_rc"][:, 1] > 16)
        return np.where(fails, np.nan, 1e-3 * cost)

    return Formula(space, cost_s)


def handful() -> Formula:
    """Returns a formula over 12 configs, 8 of them valid."""
    space = Space(
        [option_knob("a", [0, 1, 2, 3]), option_knob("b", [0, 1, 2])],
        [Constraint("a and b are too far apart", lambda c: np.abs(c["a"] - c["b"]) < 2)],
    )
    return Formula(space, lambda c: 1e-3 * (1.0 + c["a"] + 2 * c["b"]))


def rivals() -> Formula:
    """Returns a formula with a choice of two algorithms; the second is faster at its best, and slower elsewhere."""
    direct = bowl()
    space = union(
        {
            "direct": direct.space,
            "winograd": Space([option_knob("tile_size", [2, 4, 6]), split_knob("tile_p", 3 << 8, 4)]),
        }
    )

    def cost_s(columns: Any) -> Any:
        p = np.log2(columns["tile_p"])
        winograd_s = 4e-4 * (1 + 0.3 * (p[:, 1] - 3) ** 2 + 0.2 * (p[:, 3] - 2) ** 2 + (columns["tile_size"] != 4))
        return np.where(columns[ALGORITHM] == "winograd", winograd_s, direct.cost_s(columns))

    return Formula(space, cost_s)


@pytest.fixture
def formula() -> Callable[[str], Formula]:
    """Makes a formula by its name: ``bowl`` (100,000 configs or so), ``rivals`` (two algorithms) or ``handful``."""
    return lambda name: {"bowl": bowl, "rivals": rivals, "handful": handful}[name]()


@pytest.fixture(scope="session")
def accelerate() -> Callable[..., Build]:
    """Extracts a tiny network for an accelerator and compiles it, without any tuning unless receipts are given.

    The network's project, with ``tiny.py``, is the working directory; the build is ``<name>`` in it.
    """
    from anole.compile.build import BuildSettings, compile_build
    from anole.extract.tasks import extract_tasks
    from anole.spec.entries import ModelSpec
    from anole.targets.vta.settings import describe_vta
    from anole.targets.vta.target import VtaTarget

    def make(
        source: str,
        shape: tuple[int, ...],
        name: str = "net",
        receipts: Callable[[Any], Receipts] = lambda tasks: {},
        calibration: str | None = None,
        **settings: Any,
    ) -> Build:
        model = ModelSpec(name, source, {"x": shape}, calibration)
        target = VtaTarget(describe_vta(**settings))
        manifest, tasks = extract_tasks(model, "npu", target.description, target.template_version, target.takes)
        build = BuildSettings(f"{name}-npu", "random", 2, False, 0)
        return compile_build(model, manifest, build, receipts(tasks), Path(name))

    return make


@pytest.fixture(scope="session")
def accelerated(once: Callable[..., Path], accelerate: Callable[..., Any]) -> Path:
    """A project in whose folder ``net`` a residual network is built for VTA++, its first layer and pooling included."""

    def fill(folder: Path) -> None:
        copy(Path(__file__).parent / "tiny_networks.py", folder / "tiny.py")
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.chdir(folder)
            accelerate("torch:tiny:residual", (1, 3, 16, 16), geometry={"variant": "vta++"}, first_layer="vta")

    return once("accelerated", fill)

"""Shared fixtures and the order of tests: formulas in place of hardware, tiny projects and builds."""

from __future__ import annotations

import fcntl
import gc
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copy
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import is_hypothesis_test, settings

from anole.documents.build import Build
from anole.documents.receipt import Receipts
from anole.testing.formulas import Formula, bowl, handful, rivals
from kit.emulated_gpu.machine import why_unavailable
from kit.emulated_gpu.worker import EmulatedGpu

from .tiny_builds import build_tiny

if TYPE_CHECKING:
    from .record_project import Project

# Must precede the import of the contract suites, to show details of failed assertions.
pytest.register_assert_rewrite(
    *(f"anole.testing.{role}_contract" for role in ("explorer", "sampler", "surrogate", "evaluator", "target"))
)

# Examples are the same in every run, which makes failures reproducible; `make guard` uses more of them, and `make fuzz`
# new ones. There is no deadline, because the machine may be busy.
settings.register_profile("few", derandomize=True, deadline=None, max_examples=15)
settings.register_profile("more", derandomize=True, deadline=None, max_examples=100)
settings.register_profile("new", print_blob=True, deadline=None, max_examples=100)
settings.load_profile("few")

# Read when torch is imported: idle threads sleep, instead of taking cores from the tests of other workers.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

_FIRST = (
    "workflow/test_project",
    "workflow/test_simulated",
    "evaluate/test_stage",
    "compiler/test_build",
    "faults",
    "search",
    "workflow",
)
"""Long test files, which start first and in this order to keep all workers busy until the end.

Files that wait for the same fixture are not adjacent.
"""

_GUARDS = ("benchmarks/", "faults", "fuzz", "kit/emulated_gpu")
"""Folders with only `guard` tests, except the tests of the figures in docs."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore files that are deselected anyway, to avoid importing them."""
    return True if _is_guard(collection_path) and "not guard" in config.option.markexpr else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add marks, before tests are selected by marks, and order the tests."""
    home = str(Path(__file__).parent) + os.sep
    examples = defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if _is_guard(item.path):
            item.add_marker("guard")
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("property")
        if item.get_closest_marker("examples") and not any(map(item.get_closest_marker, ("guard", "slow"))):
            examples[item.nodeid.partition("[")[0]].append(item)
    for same in examples.values():
        for item in _others(same):
            item.add_marker("guard")
    places = [str(item.path).removeprefix(home) for item in items]
    ranks = {place: _rank(place) for place in set(places)}
    items[:] = [item for _, item in sorted(zip(places, items, strict=True), key=lambda pair: ranks[pair[0]])]


def _is_guard(path: Path) -> bool:
    name = path.relative_to(Path(__file__).parent).as_posix()
    return name.startswith(_GUARDS) and path.name != "test_results.py"


def _others(same: list[pytest.Item]) -> list[pytest.Item]:
    """Return the parameter sets of a test that its mark leaves to `make guard`; the others are evenly spaced."""
    (count,) = cast(pytest.Mark, same[0].get_closest_marker("examples")).args
    return [item for at, item in enumerate(same) if at * count % len(same) >= count]


def _rank(place: str) -> int:
    return next((rank for rank, name in enumerate(_FIRST) if place.startswith(name)), len(_FIRST))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[object]:
    """Exclude imported objects, which stay alive, from garbage collection, during collection and in all tests."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


@pytest.fixture(scope="session", autouse=True)
def own_locks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Use a separate folder for this worker's device locks, which would otherwise block other workers."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("ANOLE_LOCKS", str(tmp_path_factory.mktemp("locks")))
        yield


@pytest.fixture(scope="session")
def emulated_gpu() -> Iterator[EmulatedGpu]:
    """A process with an emulated GPU; skips the test if none can be emulated."""
    if (reason := why_unavailable()) is not None:
        pytest.skip(reason)
    with EmulatedGpu() as gpu:
        yield gpu


@pytest.fixture(scope="session", autouse=True)
def impatient() -> Iterator[None]:
    """Disable fsync in this process: files of tests need not survive a crash of the machine.

    Durability is tested by mocking `os.fsync`, and in separate processes (`tests/faults`).
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(os, "fsync", lambda descriptor: None)
        yield


@pytest.fixture(autouse=True)
def unbound() -> Iterator[None]:
    """Restore the CPU affinity after TVM's thread pool has bound the thread that started it to one core.

    Otherwise all workers, and the processes that they start, would end up on the same core.
    """
    before = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, before)


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """Make and fill a folder once for all workers: the first worker does it while the others wait."""
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
    """A project with an untuned build of a residual network for the CPU in folder ``net``, at batch 2."""
    return once("tiny", lambda folder: build_tiny(folder, 2, 3, 32, 32))


@pytest.fixture(scope="session")
def new_project(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Project]:
    """Make projects without records."""
    from .record_project import Project

    return lambda: Project(tmp_path_factory.mktemp("project"))


@pytest.fixture
def project(new_project: Callable[[], Project]) -> Project:
    """A project without records."""
    return new_project()


@pytest.fixture
def formula() -> Callable[[str], Formula]:
    """Make a formula by name: ``bowl`` (about 100,000 configs), ``rivals`` (two algorithms) or ``handful``."""
    return lambda name: {"bowl": bowl, "rivals": rivals, "handful": handful}[name]()


@pytest.fixture(scope="session")
def accelerate() -> Callable[..., Build]:
    """Extract a tiny network for an accelerator and compile it, untuned unless receipts are given.

    The network's project, with ``tiny.py``, is the working directory; the build is its folder ``<name>``, and the
    manifest and tasks are in the usual folders.
    """
    from anole.compiler.build import BuildSettings, compile_build
    from anole.config.entries import ModelSpec
    from anole.documents import layout
    from anole.documents.manifest import write_manifest, write_task
    from anole.extract.stage import extract_tasks
    from anole_vta.settings import describe_vta
    from anole_vta.target import VtaTarget

    def make(
        source: str,
        shape: tuple[int, ...],
        name: str = "net",
        receipts: Callable[[Any], Receipts] = lambda tasks: {},
        samples: str | None = None,
        **settings: Any,
    ) -> Build:
        model = ModelSpec(name, source, {"x": shape}, samples)
        target = VtaTarget(describe_vta(**settings))
        manifest, tasks = extract_tasks(model, "npu", target)
        for task in tasks:
            write_task(layout.task_path(task.key), task)
        write_manifest(layout.manifest_path(name, "npu"), manifest)
        build = BuildSettings(f"{name}-npu", "random", 2, False, 0)
        return compile_build(model, manifest, build, receipts(tasks), Path(name))

    return make


@pytest.fixture(scope="session")
def accelerated(once: Callable[..., Path], accelerate: Callable[..., Any]) -> Path:
    """A project with a build of a residual network for VTA++, including its first layer and pooling, in ``net``."""

    def fill(folder: Path) -> None:
        copy(Path(__file__).parent / "tiny_networks.py", folder / "tiny.py")
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.chdir(folder)
            accelerate("torch:tiny:residual", (1, 3, 16, 16), geometry={"variant": "vta++"}, first_layer="vta")

    return once("accelerated", fill)

"""A project whose stages are repeatedly killed is still completed, with every trial exactly once."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path

import pytest

from .conftest import BUILD, EXTRACT, FAULTS, SNAKEMAKE, tune_command, write_project
from .ledger import AllFigures, Ledger, trials_in
from .processes import LONGEST_S, OF_SNAKEMAKE, OF_STAGE, PATIENCE_S, SHELL, Fault, Running, strike_at_random

pytestmark = pytest.mark.workflow

TRIALS = 48
"""The budget of each of the two tasks."""

LONG, SHORT = (6, 5), (1, 1)
"""How often the stages of tuning and Snakemake are killed in the life of a project."""

KILLS = 31
"""Number of kills in a long life; a short one has `FAULTS`."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    wanted = metafunc.config.getoption("faults", FAULTS)
    if wanted > FAULTS:
        lives = [pytest.param(seed, LONG, id=f"{seed}") for seed in range(-(-wanted // KILLS))]
    else:
        lives = [pytest.param(0, SHORT, id="short"), pytest.param(0, LONG, id="long", marks=pytest.mark.slow)]
    metafunc.parametrize(("seed", "rounds"), lives)


class Life:
    """The life of a project in which every command may be killed."""

    def __init__(self, folder: Path, temporary: Path, seed: int, figures: AllFigures) -> None:
        self.project, self.temporary = write_project(folder, TRIALS), temporary
        self.database = self.project.folder / "db/tuning.sqlite"
        self.ledger, self.figures = Ledger(self.project.folder), figures
        self.rng, self.problems, self.merged = random.Random(seed), list[str](), 0
        faults = [self.rng.sample(kinds, len(kinds)) for kinds in (OF_STAGE, OF_SNAKEMAKE)]
        self.of_stage, self.of_snakemake = map(cycle, faults)

    def start(self, *command: str) -> Running:
        """Start a command in the project."""
        return Running(command, self.project.folder, {"TMPDIR": str(self.temporary)})

    def run(self, *command: str) -> None:
        """Run a command to its end; assert that it succeeds."""
        running = self.start(*command)
        assert running.wait(2 * LONGEST_S) == 0, running.output
        self.check(" ".join(command[2:5]), running)

    def kill(self, stage: str, command: Sequence[str], faults: Iterator[Fault], moments_s: tuple[float, float]) -> None:
        """Kill a command at a random time, and check what it left."""
        fault = next(faults)

        def strike(running: Running) -> bool:
            self.ledger.note()
            return fault.strike(running)

        noting_fault = Fault(fault.name, strike)
        running, struck = strike_at_random(lambda: self.start(*command), noting_fault, self.rng, moments_s)
        if struck:
            lost, doubled, orphans = self.check(f"{stage}, {fault.name}", running, fault.patience_s)
            self.figures[stage, fault.name].add(lost=lost, doubled=doubled, orphans=orphans)

    def check(self, what: str, running: Running, patience_s: float = PATIENCE_S) -> tuple[int, int, int]:
        """Return the numbers of lost lines, duplicated trials and orphans, and add sentences to `problems`."""
        orphans = running.orphans(patience_s)
        lost, doubled = self.ledger.lost(), self.ledger.doubled()
        self.problems += [f"{what}: left {orphan}" for orphan in orphans]
        self.problems += [f"{what}: lost {lost}, doubled {doubled}"] if lost or doubled else []
        self.ledger.note()
        merged = trials_in(self.database)
        assert merged >= self.merged, f"{what}: {merged} of {self.merged} trials are left in the database"
        self.merged = merged
        return lost, doubled, len(orphans)

    def leftovers(self) -> list[str]:
        """Return the temporary files and folders that were not removed, except those of other programs."""
        temporary = [path for path in self.temporary.iterdir() if path.name.startswith(("anole-", "pymp-", "tmp"))]
        hidden = [path for name in ("work", "builds", "db") for path in (self.project.folder / name).rglob(".*/")]
        journals = [Path(f"{self.database}{ending}") for ending in (".tmp", ".tmp-journal", "-journal", "-wal")]
        return sorted(path.name for path in (*temporary, *hidden, *journals) if path.exists())

    def tune(self, target: str, trials: int) -> list[str]:
        return [*SHELL, *tune_command(self.project.folder, target, trials)]


@pytest.fixture
def life(tmp_path: Path, seed: int, figures: AllFigures) -> Iterator[Life]:
    """A new project; its temporary folder has a short name, because the system limits the length of socket paths."""
    with tempfile.TemporaryDirectory() as temporary:
        yield Life(tmp_path, Path(temporary), seed, figures)


def test_a_project_that_is_repeatedly_killed_is_completed(life: Life, rounds: tuple[int, int]) -> None:
    of_tuning, of_snakemake = rounds
    for _ in range(2):
        life.kill("extract", [*SHELL, *EXTRACT["cpu"]], life.of_stage, (0.0, 1.5))
    for target in EXTRACT:
        life.run(*SHELL, *EXTRACT[target])
    for number in range(of_tuning):
        life.kill("tune (simulated)", life.tune("npu", 6 * (number + 1)), life.of_stage, (0.1, 0.7))
        life.kill("tune", life.tune("cpu", 6 * (number + 1)), life.of_stage, (0.5, 3.0))
        life.kill("merge", [*SHELL, "merge"], life.of_stage, (0.0, 0.4))
    for _ in range(of_snakemake):
        life.kill("snakemake", SNAKEMAKE, life.of_snakemake, (0.0, 8.0))
    for target, build in BUILD.items():
        life.run(*life.tune(target, TRIALS))
        life.kill("compile", [*SHELL, "compile", build], life.of_stage, (0.0, 2.0))
        life.kill("merge", [*SHELL, "merge"], life.of_stage, (0.0, 0.4))
    # Temporary files next to a build are removed when the build is compiled again.
    for build in BUILD.values():
        life.run(*SHELL, "compile", build)
    for _ in range(2):
        life.kill("evaluate", [*SHELL, "evaluate", f"builds/{BUILD['cpu']}"], life.of_stage, (0.5, 3.0))
    life.run(*SNAKEMAKE)

    assert not life.problems, "\n".join(life.problems)
    assert life.ledger.n_trials() == life.merged == 2 * TRIALS
    assert json.loads(life.project.anole("plan", "--json").stdout)["steps"] == []
    assert not life.leftovers()

"""Time the planning by `snakemake -n` and `anole plan` in projects with many extracted models, as CSV.

    python -m benchmarks.store.planning > docs/results/data/planning.csv

All models come from one module, and each has its own convolutions. Their manifests and tasks are written as by
`anole extract`; all tuning, compiling and evaluating remains to be planned. Times are CPU times: user and system, of
all processes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import yaml

from anole.documents import layout
from anole.documents.manifest import ListedTask, Manifest, write_manifest, write_task
from anole.project.pipeline import Pipeline
from anole.targets import get_target
from anole.task import Conv2d, Task
from benchmarks.common.arguments import make_parser
from benchmarks.common.rows import print_rows

HOME = Path(__file__).resolve().parents[2]
N_MODELS = (50, 100, 200)
N_TASKS_PER_MODEL = 15
N_ROUNDS = 5
COLUMNS = ("command", "models", "tasks", "processor_s", "least_s", "most_s", "n")
COMMANDS = {
    "snakemake -n": ("-m", "snakemake", "-n", "--quiet", "--cores", "all", "--snakefile", str(HOME / "Snakefile")),
    "anole plan": ("-m", "anole", "plan"),
}


def make_project(folder: Path, n_models: int) -> None:
    """Write a project with extracted models, and nothing else."""
    names = [f"net{number:03}" for number in range(n_models)]
    factories = "".join(f"\n\ndef {name}():\n    return nn.Conv2d(8, 8, 3)\n" for name in names)
    (folder / "nets.py").write_text(f"from torch import nn\n{factories}")
    inputs = {"x": [1, 8, 16, 16]}
    spec = {
        "models": {name: {"source": f"torch:nets:{name}", "inputs": inputs} for name in names},
        "targets": {"cpu": {"kind": "cpu"}},
        "builds": [{"model": name, "target": "cpu"} for name in names],
        "tuning": {"preset": "anole", "trials": 64},
    }
    (folder / "models.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))
    pipeline = Pipeline.load(folder / "models.yaml")
    target = get_target(pipeline.descriptions["cpu"])
    for number, build in enumerate(pipeline.spec.builds.values()):
        tasks = list(_tasks_of(number, target))
        for task in tasks:
            write_task(folder / layout.task_path(task.key), task)
        entries = tuple(ListedTask(task.key, task.label, task.workload.flop, 1, ("layer",)) for task in tasks)
        flop, origin = sum(entry.flop for entry in entries), pipeline.origin(build.model, build.target)
        manifest = Manifest(build.model, build.target, f"torch:nets:{build.model}", inputs, origin, entries, flop)
        write_manifest(folder / pipeline.manifest(build), manifest)


def _tasks_of(number: int, target: object) -> Iterator[Task]:
    for position in range(N_TASKS_PER_MODEL):
        workload = Conv2d(1, 16, 16, 8 + 8 * number, 8 + 8 * position, (3, 3), padding=(1, 1, 1, 1))
        yield Task(workload, target.description, target.template_version(workload))


def cpu_s(arguments: Sequence[str], folder: Path) -> float:
    """Return the CPU time of a command."""
    command = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(HOME / "lib")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert command.stderr is not None
    errors = command.stderr.read()
    _, status, usage = os.wait4(command.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(arguments)}: {errors.decode()}")
    return usage.ru_utime + usage.ru_stime


def measure() -> Iterator[dict[str, object]]:
    """Yield a row for each command and size; commands alternate."""
    for n_models in N_MODELS:
        with tempfile.TemporaryDirectory() as folder:
            make_project(Path(folder), n_models)
            rounds = [{name: cpu_s(args, Path(folder)) for name, args in COMMANDS.items()} for _ in range(N_ROUNDS)]
            n_tasks = sum(1 for _ in Path(folder, layout.TASKS).iterdir())
        for name in COMMANDS:
            seconds = [times_s[name] for times_s in rounds]
            figures = (f"{value:.2f}" for value in (median(seconds), min(seconds), max(seconds)))
            yield dict(zip(COLUMNS, (name, n_models, n_tasks, *figures, len(seconds)), strict=True))


def main() -> None:
    """Print a row for each command and size."""
    make_parser(__doc__).parse_args()
    print_rows(COLUMNS, measure())


if __name__ == "__main__":
    main()

"""Projects used like a user would: only by commands and files, in separate processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tests.acceptance.networks import CASES, Case
from tests.terminal import run_command

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

LOADED = """
import json, runpy, sys
import numpy as np
for folder, inputs, outputs in json.loads(sys.argv[1]):
    module = runpy.run_path(f"{folder}/load.py")
    given, build = np.load(inputs), module["BUILD"]
    found = module["Model"]()(*(given[info["name"]] for info in build["inputs"]))
    names = [info["name"] for info in build["outputs"]]
    np.savez(outputs, allow_pickle=False, **dict(zip(names, found, strict=True)))
"""

IN_TURN = """
import json, sys
from anole.__main__ import main
for command in json.loads(sys.argv[1]):
    if code := main.main(command, standalone_mode=False):
        sys.exit(code)
"""


class User:
    """A user with a project folder.

    Attributes:
        library: the folder of a copy of the library to run instead of this checkout.
    """

    def __init__(self, folder: Path, library: Path | None = None) -> None:
        self.folder, self.library = folder, library
        shutil.copy(HERE / "networks.py", folder / "networks.py")

    def ask_oracle(self, names: Iterable[str]) -> None:
        """Store the outputs of networks, computed in a process without Anole."""
        self._run("networks.py", *names)

    def write(self, names: Iterable[str], targets: dict[str, Any] | None = None, **entries: Case) -> None:
        """Write models.yaml, with an untuned build of each case for each target."""
        cases = {name: CASES[name] for name in names} | entries
        targets = targets or {"cpu": {}}
        kinds = {name: {"kind": "cpu", **target} for name, target in targets.items()}
        for target in kinds.values():
            if target["kind"] == "cpu":
                target.setdefault("threads", 1)
        plain = {
            "models": {name: {"source": case.source, "inputs": dict(case.inputs)} for name, case in cases.items()},
            "targets": kinds,
            "tuning": {"preset": "random", "trials": 0},
            "builds": [{"model": name, "target": target} for target in targets for name in cases],
        }
        (self.folder / "models.yaml").write_text(yaml.safe_dump(plain, sort_keys=False))

    def snakemake(self, *targets: str) -> str:
        """Run the workflow, which must succeed, and return what it prints."""
        ran = self.try_snakemake(*targets)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    def try_snakemake(self, *targets: str) -> subprocess.CompletedProcess[str]:
        """Run the workflow."""
        home = ROOT if self.library is None else self.library
        arguments = ["-m", "snakemake", "--snakefile", str(home / "Snakefile"), "--cores", "2", *targets]
        return self._try(*arguments)

    def anole(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of Anole."""
        return self._try("-m", "anole", *arguments)

    def in_turn(self, *commands: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """Run commands of Anole one after another in one process, which imports torch and TVM once."""
        return self._try("-c", IN_TURN, json.dumps(commands))

    def inputs(self, case: str) -> Path:
        return self.folder / f"oracle/{case}.inputs.npz"

    def outputs(self, case: str) -> dict[str, np.ndarray]:
        """Return the outputs of a network, by name."""
        return dict(np.load(self.folder / f"oracle/{case}.outputs.npz"))

    def run_by_load_py(self, build: str, inputs: Path) -> dict[str, np.ndarray]:
        """Return the outputs of a build, run by its ``load.py``."""
        return self.run_each_by_load_py({build: inputs})[build]

    def run_each_by_load_py(self, inputs: Mapping[str, Path]) -> dict[str, dict[str, np.ndarray]]:
        """Return the outputs of builds, run by their ``load.py`` in one process."""
        calls = {name: (f"builds/{name}", str(given), f"{name}.npz") for name, given in inputs.items()}
        self._run("-c", LOADED, json.dumps(list(calls.values())))
        return {name: dict(np.load(self.folder / f"{name}.npz")) for name in calls}

    def run_by_command(self, build: str, inputs: Path) -> dict[str, np.ndarray]:
        """Return the outputs of a build, run by `anole run` with inputs by name."""
        return self._written(inputs, lambda output: self._run_build(build, ["--input", str(inputs)], output))

    def run_by_order(self, build: str, case: str) -> dict[str, np.ndarray]:
        """Return the outputs of a build, run by `anole run` with one file per input in the order of models.yaml."""
        arguments: list[str] = []
        for name, array in np.load(self.inputs(case)).items():
            np.save(self.folder / f"{name}.npy", array)
            arguments += ["--input", f"{name}.npy"]
        return self._written(self.inputs(case), lambda output: self._run_build(build, arguments, output))

    def _run_build(self, build: str, arguments: list[str], output: Path) -> None:
        ran = self.anole("run", f"builds/{build}", *arguments, "--output", str(output))
        assert ran.returncode == 0, ran.stderr

    def _written(self, inputs: Path, write: Any) -> dict[str, np.ndarray]:
        output = self.folder / "found.npz"
        output.unlink(missing_ok=True)
        write(output)
        return dict(np.load(output))

    def _run(self, *arguments: object) -> None:
        ran = self._try(*map(str, arguments))
        assert ran.returncode == 0, ran.stdout + ran.stderr

    def _try(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        if self.library is not None:
            environment["PYTHONPATH"] = str(self.library / "lib")
        return run_command([sys.executable, *arguments], cwd=self.folder, env=environment, timeout=900)


def difference(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> float:
    """Return the maximum relative L2 distance of the outputs; infinite if names, types or special values differ."""
    if list(found) != list(expected):
        return float("inf")
    distances = [0.0]
    for name, theirs in expected.items():
        mine = found[name]
        if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype):
            return float("inf")
        if not np.array_equal(*(np.where(np.isfinite(array), 0, array) for array in (mine, theirs)), equal_nan=True):
            return float("inf")
        mine, theirs = (np.where(np.isfinite(theirs), array, 0).astype(np.float64) for array in (mine, theirs))
        distances.append(float(np.linalg.norm(mine - theirs) / max(float(np.linalg.norm(theirs)), 1e-30)))
    return max(distances)

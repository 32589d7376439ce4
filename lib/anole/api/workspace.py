"""The project folder behind `anole.compile`: it adds models to its models.yaml, and runs the workflow on them."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from anole.api.sources import digest
from anole.config.source import model_files
from anole.documents.log import failure_summary
from anole.errors import AnoleError, BuildError, ExtractError, MeasureError, ProjectError, SpecError
from anole.files import make_folder, write_atomically
from anole.host.lock import try_lock
from anole.project.pipeline import Pipeline
from anole.project.scaffold import make_project

_HEADER = "# Written by anole.compile, which adds each model. `snakemake --cores all` continues from here.\n"

_ERRORS: Mapping[str, type[AnoleError]] = {"extract": ExtractError, "tune": MeasureError}
"""The errors of failed stages; others are a `BuildError`."""


class Workspace:
    """A project whose models.yaml is written by this class; one process at a time uses it."""

    def __init__(self, folder: Path | str | None = None) -> None:
        cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
        self.folder = Path(folder or Path(cache, "anole")).expanduser().absolute()
        self._spec = self.folder / "models.yaml"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Wait for other processes, and make the folder a project if it is new.

        Raises:
            ProjectError: the folder has a models.yaml that someone else wrote.
        """
        make_folder(self.folder)
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            while not try_lock(handle):
                time.sleep(0.2)
            if not self._spec.exists():
                make_project(self.folder, demo=False)
                self._write({})
            elif not self._spec.read_text(encoding="utf-8").startswith(_HEADER):
                raise ProjectError(f"{self._spec}: was not written by anole.compile; give another `project`")
            yield
        finally:
            os.close(handle)

    def add(self, model: str, entry: Mapping[str, Any], target: Mapping[str, Any], trials: int) -> str:
        """Add a model, a target and a build of both, or replace the build's trials; return the build's name.

        Models whose files are gone are dropped.

        Raises:
            SpecError: an entry is not valid; models.yaml is unchanged.
        """
        spec = yaml.safe_load(self._spec.read_text(encoding="utf-8")) or {}
        options = [f"{name}_{value}" for name, value in target.items() if name != "kind"]
        target_name = "-".join([target["kind"], *options])
        if not re.fullmatch(r"[\w.-]{1,60}", target_name, re.ASCII):
            target_name = f"{target['kind']}-{digest(target_name)}"
        build = f"{model}-{target_name}"
        models = {name: kept for name, kept in spec.get("models", {}).items() if self._exists(kept)}
        builds = [item for item in spec.get("builds", ()) if item["model"] in models and item["name"] != build]
        before = self._spec.read_bytes()
        self._write(
            {
                "models": {**models, model: dict(entry)},
                "targets": {**spec.get("targets", {}), target_name: dict(target)},
                "builds": [*builds, {"model": model, "target": target_name, "trials": trials, "name": build}],
            }
        )
        try:
            Pipeline.load(self._spec)
        except AnoleError:
            write_atomically(self._spec, before)
            raise
        return build

    def save_samples(self, samples: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, str]:
        """Write samples into the project, and return the model's setting for them.

        Raises:
            SpecError: the samples of one of these inputs, as in models.yaml, are missing or have another shape.
        """
        for name, entry in inputs.items():
            shape = entry["shape"] if isinstance(entry, Mapping) else entry
            found = tuple(np.shape(samples.get(name, 0.0)))
            fits = [actual == size or isinstance(size, Mapping) for actual, size in zip(found[1:], shape, strict=False)]
            if len(found) != len(shape) + 1 or not found[0] or not all(fits):
                problem = f"found shape {found}" if name in samples else f"missing; found {', '.join(samples)}"
                needed = f"(samples, {', '.join(map(str, shape))})"
                raise SpecError(f"samples.{name}", f"{problem}; needed is an array of shape {needed}", "anole.compile")
        file = io.BytesIO()
        arrays: Any = {name: np.asarray(array) for name, array in samples.items()}
        np.savez(file, **arrays)
        name = f"samples_{digest(file.getvalue())}.npz"
        write_atomically(self.folder / name, file.getvalue())
        return {"samples": name}

    def run(self, output: Path, progress: bool) -> Path:
        """Run the workflow for an output of the project; return its path.

        Raises:
            AnoleError: a stage failed, with its message.
        """
        began_s = time.time()
        command = [sys.executable, "-m", "snakemake", "--cores", "all", str(output)]
        shown = {} if progress else {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        failed = subprocess.run(command, cwd=self.folder, check=False, text=True, **shown)  # type: ignore[call-overload]
        if failed.returncode:
            logs = [path for path in self.folder.glob("logs/*/*.log") if path.stat().st_mtime >= began_s]
            if not logs:
                raise BuildError(f"{self.folder}: the workflow failed: {(failed.stderr or '').strip()[-500:]}")
            log = max(logs, key=lambda path: path.stat().st_mtime)
            raise _ERRORS.get(log.parent.name, BuildError)(failure_summary([log]))
        return self.folder / output

    def _exists(self, entry: Mapping[str, Any]) -> bool:
        files = model_files(entry["source"], self.folder)
        return all((self.folder / file).exists() for file in files) and bool(files or entry["source"][0:5] != "torch:")

    def _write(self, spec: Mapping[str, Any]) -> None:
        write_atomically(self._spec, _HEADER + yaml.safe_dump(dict(spec), sort_keys=False) if spec else _HEADER)

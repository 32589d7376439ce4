"""What models.yaml asks for, as files: which manifest, runs and receipts each build stands on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from anole import layout
from anole.errors import ExtractError
from anole.presets import read_tuner
from anole.record import Run
from anole.settings import TunerSettings
from anole.source import model_files
from anole.spec import BuildSpec, ModelSpec, Spec, load_spec
from anole.tuner import TUNER_VERSION

EXTRACT_VERSION = 1
"""Raised when the same model comes to other tasks than before, so that it is extracted again."""


@dataclass(frozen=True)
class Pipeline:
    """A models.yaml without mistakes, and what follows from it on this machine.

    Attributes:
        tuners: by the name of the build.
        descriptions: by the name of the target.
        project: the folder that all paths are relative to.
    """

    spec: Spec
    tuners: Mapping[str, TunerSettings] = field(hash=False)
    descriptions: Mapping[str, Mapping[str, Any]] = field(hash=False)
    project: Path

    @classmethod
    def load(cls, path: Path | str = "models.yaml", overrides: Mapping[str, Any] | None = None) -> Self:
        """Reads models.yaml and checks all of it.

        Args:
            path: the file.
            overrides: laid over it, as `load_spec` does.

        Raises:
            SpecError: the first mistake found.
        """
        spec = load_spec(path, overrides)
        read_tuner(spec.tuning, "tuning")
        tuners = {name: read_tuner(build.tuning, build.path) for name, build in spec.builds.items()}
        used = {build.target for build in spec.builds.values()}
        descriptions = {name: spec.targets[name].describe() for name in sorted(used)}
        return cls(spec, tuners, descriptions, Path(path).parent)

    def files(self, model: str) -> list[Path]:
        """Returns the model's own files: when one of them changes, the model is extracted again."""
        return model_files(self.spec.models[model].source, self.project)

    def manifest(self, build: BuildSpec) -> Path:
        """Returns where the manifest of a build's model and target is."""
        return layout.manifest_path(build.model, build.target)

    def manifests(self) -> list[Path]:
        """Returns the manifests of all builds, each once."""
        return list(dict.fromkeys(self.manifest(build) for build in self.spec.builds.values()))

    def read_manifest(self, model: str, target: str) -> dict[str, Any]:
        """Returns what extracting a model for a target found.

        Raises:
            ExtractError: it is not there, cannot be read, or was made for another entry of models.yaml or another
                description of the target.
        """
        path = self.project / layout.manifest_path(model, target)
        remedy = "extract the model again (snakemake --forcerun extract)"
        try:
            manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            made_from = manifest["made_from"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ExtractError(f"{path}: is not a manifest ({type(error).__name__}: {error}); {remedy}") from error
        present = origin(self.spec.models[model], self.descriptions[target])
        changed = [part for part in present if made_from.get(part) != present[part]]
        if changed:
            raise ExtractError(f"{path}: was made for another {' and another '.join(changed)}; {remedy}")
        return manifest

    def run(self, build: BuildSpec, task_key: str) -> Run:
        """Returns the run that tunes a task for a build."""
        tuner = self.tuners[build.name]
        return Run(task_key, tuner.preset, build.seed, TUNER_VERSION, tuner.to_json())

    def receipts(self, build: BuildSpec) -> list[Path]:
        """Returns the receipts that a build stands on, one for each task; none for a build without trials.

        Raises:
            ExtractError: the manifest is not there, cannot be read or is out of date.
        """
        if not build.trials:
            return []
        keys = [task["key"] for task in self.read_manifest(build.model, build.target)["tasks"]]
        return [layout.receipt_path(key, self.run(build, key).key, build.trials) for key in keys]

    def tuner_of(self, task_key: str, run_key: str) -> tuple[TunerSettings, int]:
        """Returns the tuner and the seed of a run that some build asks for.

        Raises:
            KeyError: none does.
        """
        for build in self.spec.builds.values():
            if self.run(build, task_key).key == run_key:
                return self.tuners[build.name], build.seed
        raise KeyError(run_key)


def origin(model: ModelSpec, description: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a manifest is made from, as it says itself, so that a stale one is known."""
    return {"entry": model.to_json(), "target description": dict(description), "extract version": EXTRACT_VERSION}

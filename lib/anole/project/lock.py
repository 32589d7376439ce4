"""Lock builds: write the configs that they were compiled with into the project's lock file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from anole.config.entries import Spec
from anole.config.reading import load_spec
from anole.documents import layout
from anole.documents.build import FILE, Build, BuiltTask, check_build_files, read_build
from anole.documents.lockfile import LockedBuild, LockedTask, Lockfile, lockfile_path, read_lockfile, write_lockfile
from anole.errors import BuildError, DocumentError
from anole.keys import canonical_json
from anole.node import Node
from anole.project.hardware import look_for
from anole.project.quantized_models import model_for_target


def lock_builds(spec_path: Path, names: Sequence[str]) -> Mapping[str, LockedBuild]:
    """Lock builds, by default all compiled ones, to the configs with which they were compiled.

    Other entries of the lock file do not change. Return the new entries by build name.

    Raises:
        SpecError: models.yaml or the lock file has a mistake, or there is no such build.
        DocumentError: a build does not exist, is damaged or does not record all configs.
        BuildError: a build's model or target differs from models.yaml, or no build is compiled.
    """
    spec, project = load_spec(spec_path), spec_path.parent
    lockfile = read_lockfile(lockfile_path(project))
    for name in names:
        Node(name, "builds", spec.file).choice(spec.builds, "one of the builds")
    selected = names or [name for name in spec.builds if (project / layout.build_path(name) / FILE).exists()]
    if not selected:
        raise BuildError(f"{project / layout.BUILDS}: no build of {spec.file} is compiled; `snakemake` compiles them")
    entries = {name: _locked_build(spec, project / layout.build_path(name), name) for name in selected}
    write_lockfile(replace(lockfile, builds={**lockfile.builds, **entries}))
    return entries


def unlock_builds(spec_path: Path, names: Sequence[str]) -> Lockfile:
    """Remove builds from the lock file and return the rest; models.yaml need not contain these builds.

    Raises:
        SpecError: the lock file has a mistake, or an entry is missing.
    """
    lockfile = read_lockfile(lockfile_path(spec_path.parent))
    for name in names:
        Node(name, "builds", str(lockfile.path)).choice(lockfile.builds, "one of the locked builds")
    remaining = replace(lockfile, builds={name: entry for name, entry in lockfile.builds.items() if name not in names})
    write_lockfile(remaining)
    return remaining


def _locked_build(spec: Spec, folder: Path, name: str) -> LockedBuild:
    build = read_build(folder)
    check_build_files(folder, build)
    _check_up_to_date(spec, folder, name, build)
    return LockedBuild(build.target_description, {task.key: _locked_task(folder, task) for task in build.tasks})


def _check_up_to_date(spec: Spec, folder: Path, name: str, build: Build) -> None:
    """Raise BuildError if the model or target differs from models.yaml: the configs may be for other tasks."""
    declared = spec.builds[name]
    description = look_for(spec.targets[declared.target], Path(spec.file).parent).description
    matches = {
        "model": canonical_json(build.entry)
        == canonical_json(model_for_target(spec, declared.model, declared.target).to_json()),
        "target": description is None or canonical_json(description) == canonical_json(build.target_description),
    }
    differences = " and ".join(field for field, is_match in matches.items() if not is_match)
    if differences:
        raise BuildError(f"{folder}: its {differences} differs from {spec.file}; `snakemake` compiles it again")


def _locked_task(folder: Path, task: BuiltTask) -> LockedTask:
    config = task.unscheduled if task.config is None else task.config
    if config is None:
        raise DocumentError(folder / FILE, f"{task.label}: its config was not recorded", "compile")
    return LockedTask(task.label, config, task.latency_s, task.run_key)

"""The compile stage: compile a build from a manifest and receipts."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from anole.compiler.build import BuildSettings, compile_build
from anole.compiler.rounding import RoundingCheck
from anole.documents import layout
from anole.documents.lockfile import locked_receipts, lockfile_path, read_lockfile
from anole.documents.manifest import Manifest, Order, network_path, read_manifest
from anole.documents.receipt import Receipts, read_receipts
from anole.errors import BuildError
from anole.extract.imported import read_network

_log = logging.getLogger(__name__)


def compile_network(
    build: str,
    order: Order,
    manifest_path: Path,
    receipt_paths: Iterable[Path],
    folder: Path,
    has_large_rounding_error: RoundingCheck | None = None,
) -> None:
    """Compile a build with this name from the files of the extract and tune stages.

    A receipt file has one or several receipts, possibly refined. A task without a receipt gets a default config, which
    is logged. If the build is locked, configs in the project's lock file take precedence over receipts. For
    `has_large_rounding_error` see `compile_build`.

    Raises:
        DocumentError: the manifest or the network is missing, broken or stale, or a receipt is missing or broken.
        SpecError: the lock file has a mistake, or is for another target.
        BuildError: the network cannot be compiled, the lock file has changed, or a locked config does not fit.
    """
    manifest = read_manifest(manifest_path, order.origin)
    receipts: Receipts = read_receipts(receipt_paths)
    if order.lock is not None:
        receipts = {**receipts, **_locked_receipts(build, order, manifest, layout.project_of_manifest(manifest_path))}
    model, settings = order.model_spec, BuildSettings.of(build, order)
    network = read_network(network_path(manifest_path))
    compile_build(model, manifest, settings, receipts, folder, network, has_large_rounding_error)


def _locked_receipts(build: str, order: Order, manifest: Manifest, project: Path) -> Receipts:
    """Return the locked configs of a build, and warn about tasks that have none."""
    lockfile = read_lockfile(lockfile_path(project))
    entry = lockfile.builds.get(build)
    if entry is None or entry.key != order.lock:
        raise BuildError(f"{lockfile.path}: builds.{build}: has changed since this job was planned; start it again")
    lockfile.check_target(build, order.origin.target_description)
    for task in manifest.tasks:
        if task.key not in entry.tasks:
            _log.warning("%s: %s has no config in %s: using its records", build, task.label, lockfile.path)
    return locked_receipts(lockfile, build, order.trials)

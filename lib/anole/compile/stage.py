"""The stage that compiles: from a manifest and receipts to a build."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from anole.compile.build import BuildSettings, compile_build
from anole.documents.manifest import read_manifest
from anole.documents.order import Order
from anole.documents.receipt import read_receipts


def compile_network(build: str, order: Order, manifest_path: Path, receipt_paths: Iterable[Path], folder: Path) -> None:
    """Compiles a build from what extracting and tuning left.

    Args:
        build: the build's name.
        order: what is compiled.
        manifest_path: the manifest of the model on its target.
        receipt_paths: the receipts of the model's tasks, one by one, together or refined; a task without one gets a
            default config, which is logged.
        folder: where the build goes.

    Raises:
        DocumentError: the manifest is missing, broken or stale, or a receipt is missing or broken.
        ExtractError: the model cannot be loaded.
        BuildError: the network cannot be compiled.
    """
    manifest = read_manifest(manifest_path, order.origin)
    compile_build(order.model_spec, manifest, BuildSettings.of(build, order), read_receipts(receipt_paths), folder)

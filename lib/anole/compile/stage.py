"""The stage that compiles: from a manifest and receipts to a build."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from anole.compile.build import BuildSettings, compile_build
from anole.documents.manifest import read_manifest
from anole.documents.receipt import read_receipts
from anole.spec.entries import ModelSpec


def compile_network(
    build: str, order: Mapping[str, Any], manifest_path: Path, receipt_paths: Iterable[Path], folder: Path
) -> None:
    """Compiles a build from what extracting and tuning left.

    Args:
        build: its name.
        order: what `Pipeline.order` says of it.
        manifest_path: of its model on its target.
        receipt_paths: of the model's tasks, one by one, together or refined; what has none stays untuned, which is
            said.
        folder: where the build goes.

    Raises:
        ExtractError: the manifest is missing, broken or stale, or a receipt is.
        BuildError: the network cannot be compiled.
    """
    manifest = read_manifest(manifest_path, order["origin"])
    receipts = read_receipts(receipt_paths)
    model = ModelSpec.from_json(order["model"], order["origin"]["entry"])
    settings = BuildSettings(build, order["preset"], order["trials"], order["shared"], order["seed"])
    compile_build(model, manifest, settings, receipts, folder)

"""The manifest: the tasks that a model has on a target."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anole.errors import ExtractError

REMEDY = "extract the model again (snakemake --forcerun extract)"


def read_manifest(path: Path, origin: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns a manifest that is up to date.

    Args:
        path: of the manifest.
        origin: what it must be made from, as `Pipeline.origin` says; it may be anything when None.

    Raises:
        ExtractError: it is missing or broken, or is made from something else.
    """
    try:
        manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        changed = [part for part, made_from in (origin or {}).items() if manifest[part] != made_from]
    except FileNotFoundError as error:
        raise ExtractError(f"{path}: there is no such manifest; {REMEDY}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExtractError(f"{path}: is no manifest ({type(error).__name__}: {error}); {REMEDY}") from error
    if changed:
        raise ExtractError(f"{path}: is of another {' and '.join(changed)} than models.yaml; {REMEDY}")
    return manifest

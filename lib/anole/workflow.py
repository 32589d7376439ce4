"""The location of the Snakemake workflow: in the checkout, or in the installed package."""

from pathlib import Path

_PACKAGE = Path(__file__).parent
_SHARE = _PACKAGE / "share"

HOME = _SHARE if _SHARE.is_dir() else _PACKAGE.parents[1]
"""The folder that holds `Snakefile`, `rules/`, `profiles/` and `db/queries/`."""

SNAKEFILE = HOME / "Snakefile"

"""Block the import of torch in workers, which halves the time to import TVM; the fork server imports this first."""

from __future__ import annotations

import sys

# tvm_ffi tries to import torch for a conversion that no worker uses.
sys.modules.setdefault("torch", None)  # type: ignore[arg-type]

"""Block the import of torch in workers, to halve the import time of TVM; the fork server imports this module first."""

from __future__ import annotations

import sys

# tvm_ffi tries to import torch for a conversion that no worker uses.
sys.modules.setdefault("torch", None)  # type: ignore[arg-type]

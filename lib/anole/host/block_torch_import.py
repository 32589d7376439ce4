"""Block the import of torch, to halve the import time of TVM; the fork server of workers imports this module first."""

import sys

# tvm_ffi tries to import torch for a conversion that Anole does not use.
sys.modules.setdefault("torch", None)  # type: ignore[arg-type]

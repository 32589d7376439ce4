"""What the workers' server imports first: nothing here, but it keeps torch out of TVM's import, which halves it."""

from __future__ import annotations

import sys

# tvm_ffi tries `import torch` for a conversion that no worker needs.
sys.modules.setdefault("torch", None)  # type: ignore[arg-type]

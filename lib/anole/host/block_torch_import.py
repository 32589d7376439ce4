"""The worker server's first import: it keeps torch out of TVM's import, which halves the import's time."""

from __future__ import annotations

import sys

# tvm_ffi tries `import torch` for a conversion that no worker needs.
sys.modules.setdefault("torch", None)  # type: ignore[arg-type]

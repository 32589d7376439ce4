"""The engines that a build is compared with."""

from __future__ import annotations

from pathlib import Path

import pytest

from anole.errors import BuildError
from anole.evaluate.engines import onnxruntime_engine


def test_a_model_that_onnx_runtime_cannot_load_is_said_in_one_error(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"no model")
    with pytest.raises(BuildError, match=r"model\.onnx: ONNX Runtime .* cannot load it"):
        onnxruntime_engine(path, [], 1)

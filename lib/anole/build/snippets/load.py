"""Runs the build in this folder; needs TVM's runtime and NumPy, and nothing of what made it."""

import json
import os
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
BUILD = json.loads((FOLDER / "build.json").read_text(encoding="utf-8"))
# TVM by itself would use half of the logical processors.
os.environ.setdefault("TVM_NUM_THREADS", str(BUILD["target_description"]["threads"]))

import numpy as np  # noqa: E402
import tvm  # noqa: E402
from tvm.runtime.vm import VirtualMachine  # noqa: E402


class Model:
    """The network: call it with one array for each input; it returns the list of its outputs."""

    def __init__(self):
        self._run = VirtualMachine(tvm.runtime.load_module(str(FOLDER / "model.so")), tvm.cpu())["main"]

    def __call__(self, *arrays):
        """Returns the outputs, as arrays, of inputs that have the shapes and types of build.json."""
        found = self._run(*(tvm.runtime.tensor(np.ascontiguousarray(array)) for array in arrays))
        return [found.numpy()] if hasattr(found, "numpy") else [each.numpy() for each in found]


if __name__ == "__main__":
    inputs = [np.zeros(each["shape"], each["dtype"]) for each in BUILD["inputs"]]
    for info, array in zip(BUILD["outputs"], Model()(*inputs), strict=True):
        print(info["name"], array.shape, array.ravel()[:5])

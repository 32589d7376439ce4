"""Mutants of the library, which `anole evaluate` or the oracle must detect."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.acceptance.conftest import ROOT, User, difference


@dataclass(frozen=True)
class Mutant:
    """A change of one file of the library.

    Attributes:
        case: the network that reveals it.
        message: a part of the evaluation's error message.
    """

    file: str
    old: str
    new: str
    case: str = "turned"
    message: str = "outputs differ from"

    def text(self) -> str:
        """Return the changed text of the file."""
        text = (ROOT / "lib/anole" / self.file).read_text()
        assert text.count(self.old) == 1, f"{self.file}: the text to change occurs once: {self.old}"
        return text.replace(self.old, self.new)


NETWORK = "    arguments, binding = example_inputs(model), bind(model, network)\n"
CALL = "    network.forward = lambda x, a, own=network.forward: own"
INFOS = "in values.items()}\n    return tuple("
SORTED = INFOS.replace("    return", "    values = dict(sorted(values.items(), reverse=True))\n    return")
PARAMS = "    params = [main.params[current_names.index(name)] for name in names]\n"
READ = "    inputs = input_infos(model, proto)\n"
IMPORTED = "        module,\n        inputs,\n"
RUN = '*(tvm.runtime.tensor(np.asarray(array, order="C"), self._device) for array in arrays)'
RETURNED = 'return [outputs.numpy()] if hasattr(outputs, "numpy") else [output.numpy() for output in outputs]'

TORCH, FILE, BUILD, LOAD = (
    *("extract/torch.py", "extract/onnx/importer.py"),
    *("compiler/build.py", "compiler/snippets/load.py.in"),
)
NAMES, VALUES = "model turned has", "outputs differ from"
FILE_NAMES, DEPLOYED = "model file has", "load.py and model.so return different outputs"

MUTANTS = {
    "extract swaps inputs": Mutant("extract/binding.py", "tuple(bound.args), tuple", "tuple(bound.args)[::-1], tuple"),
    "extract swaps parameters": Mutant(TORCH, PARAMS, PARAMS + "    params.reverse()\n"),
    "extract sorts names": Mutant(TORCH, INFOS, SORTED, message=NAMES),
    "extract drops an input": Mutant(TORCH, NETWORK, f"{CALL}(x, 0 * a)\n{NETWORK}"),
    "extract transposes an input": Mutant(TORCH, NETWORK, f"{CALL}(x, a.T.reshape(a.shape))\n{NETWORK}"),
    "extract skips a layer": Mutant(TORCH, NETWORK, "    network.linear = torch.nn.Identity()\n" + NETWORK),
    "extract reverses outputs": Mutant(FILE, READ, READ + "    proto.graph.output.reverse()\n", "file", FILE_NAMES),
    "extract swaps a file's inputs": Mutant(FILE, IMPORTED, IMPORTED.replace("puts", "puts[::-1]"), "file", FILE_NAMES),
    "an entry is sorted": Mutant(
        "config/entries.py",
        "in inputs.items()]\n",
        "in sorted(inputs.items())]\n",
        "positions",
        "that differs from models.yaml",
    ),
    "compile takes other weights": Mutant("extract/imported.py", ".view(info.dtype)", ".view(info.dtype)[::-1]"),
    "compile reverses outputs": Mutant(
        BUILD, "outputs=imported.outputs", "outputs=imported.outputs[::-1]", "file", FILE_NAMES
    ),
    "compile reverses inputs": Mutant(BUILD, "inputs=imported.inputs", "inputs=imported.inputs[::-1]", message=NAMES),
    "evaluate swaps inputs": Mutant(
        "evaluate/torch_wrappers.py", "(self._inputs, tensors", "(self._inputs, tensors[::-1]"
    ),
    "load swaps inputs": Mutant(LOAD, RUN, RUN.replace("in arrays", "in arrays[::-1]"), message=DEPLOYED),
    "load drops an input": Mutant(LOAD, RUN, RUN.replace("in arrays", "in arrays[:1] * 2"), message=DEPLOYED),
    "load transposes an input": Mutant(
        LOAD, RUN, RUN.replace("(array,", "(array.T.reshape(array.shape),"), message=DEPLOYED
    ),
    "load reverses outputs": Mutant(LOAD, RETURNED, RETURNED + "[::-1]", "file", DEPLOYED),
}


OUTDATED = Mutant("project/content.py", "return content_key(digests) if digests else None", "return None")


def test_mutants_change_the_library() -> None:
    assert all(mutant.text() for mutant in (*MUTANTS.values(), OUTDATED))


def mutate(mutant: Mutant, folder: Path) -> Path:
    """Return a mutated copy of the library."""
    for name in ("lib", "rules", "profiles"):
        shutil.copytree(ROOT / name, folder / name)
    for name in ("Snakefile", "environment.yml"):
        shutil.copy(ROOT / name, folder)
    (folder / "lib/anole" / mutant.file).write_text(mutant.text())
    return folder


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the outputs of all mutants' cases."""
    user = User(tmp_path_factory.mktemp("oracle"))
    user.ask_oracle({mutant.case for mutant in MUTANTS.values()})
    return user.folder


@pytest.mark.workflow
@pytest.mark.guard
@pytest.mark.parametrize("name", MUTANTS)
def test_evaluation_and_oracle_detect_the_mutant(name: str, oracle: Path, tmp_path: Path) -> None:
    mutant, project = MUTANTS[name], tmp_path / "project"
    shutil.copytree(oracle, project)
    user = User(project, mutate(mutant, tmp_path / "library"))
    user.write([mutant.case])
    build, inputs = f"{mutant.case}-cpu-random", user.inputs(mutant.case)
    ran = user.in_turn(
        ["extract", mutant.case, "--target", "cpu"],
        ["compile", build],
        ["run", f"builds/{build}", "--input", str(inputs), "--output", "found.npz"],
        ["evaluate", f"builds/{build}", "--rounds", "1"],
    )
    assert ran.returncode != 0 and mutant.message in ran.stderr, ran.stderr
    found = user.run_by_load_py(build, inputs) if name.startswith("load") else dict(np.load(project / "found.npz"))
    # A build is made from the stored network, which no entry can change.
    if not name.startswith(("evaluate", "an entry")):
        assert difference(found, user.outputs(mutant.case)) > 1e-2


@pytest.mark.workflow
@pytest.mark.guard
def test_outdated_weights_are_detected(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    user = User(tmp_path / "project", mutate(OUTDATED, tmp_path / "library"))
    user.ask_oracle(["turned"])
    user.write(["turned"])
    user.snakemake()
    networks = user.folder / "networks.py"
    before = networks.stat().st_mtime
    networks.write_text(networks.read_text().replace("seed: int = 0", "seed: int = 5"))
    os.utime(networks, (before - 9e4, before - 9e4))
    user.ask_oracle(["turned"])
    assert "Nothing to do" in user.anole("plan").stdout, "the mutant does not notice the change"
    ran = user.anole("evaluate", "builds/turned-cpu-random")
    assert ran.returncode != 0 and "outputs differ from torch's" in ran.stderr
    assert difference(user.run_by_load_py("turned-cpu-random", user.inputs("turned")), user.outputs("turned")) > 1e-2

"""`anole.compile` and `anole.load` compute what torch computes, and a second call repeats nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper

import anole
from anole.api.call_format import CallFormat
from anole.api.workspace import Workspace


class Net(torch.nn.Module):
    """A network with two inputs, a constant argument and a nested result."""

    def __init__(self, width=16):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, width, 3, padding=1)
        self.drop, self.head = torch.nn.Dropout(0.5), torch.nn.Linear(width, 8)

    def forward(self, image, mask=None, *, detailed=False):
        scores = self.drop(self.head(torch.relu(self.conv(image)).mean((2, 3))))
        scores = scores if mask is None else scores * mask
        return {"scores": scores, "nothing": None, "parts": [scores + 1, scores.sum()]} if detailed else scores


@pytest.fixture(scope="module")
def detailed(tmp_path_factory):
    torch.manual_seed(0)
    project, network = tmp_path_factory.mktemp("project"), Net()
    image, mask = torch.randn(2, 3, 9, 9), torch.randn(2, 8)
    options = {"kwargs": {"detailed": True}, "project": project, "progress": False}
    call = anole.compile(network, image, mask, **options)
    assert network.training and network.head.training  # as before
    return SimpleNamespace(network=network.eval(), image=image, mask=mask, call=call, project=project)


class Cached(torch.nn.Module):
    """A network that keeps the keys of all tokens, their number and, assigned to a layer, a moving average."""

    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 6, 4))
        self.register_buffer("n_tokens", torch.zeros(1, dtype=torch.int64))
        self.project = torch.nn.Linear(4, 4)
        self.project.register_buffer("average", torch.zeros(()))

    def forward(self, keys):  # an input with the name of a buffer
        self.keys.index_copy_(1, self.n_tokens, self.project(keys).reshape(2, 1, 4))
        self.n_tokens += 1
        self.project.average = 0.75 * self.project.average + keys.mean()
        return {"scores": (self.keys @ keys.reshape(2, 4, 1)).tanh(), "average": self.project.average}


def assert_close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_results_have_the_values_and_structure_of_the_modules(detailed):
    with torch.no_grad():
        expected = detailed.network(detailed.image, mask=detailed.mask, detailed=True)
        other = detailed.network(-detailed.image, mask=detailed.mask, detailed=True)
    first = detailed.call(detailed.image, detailed.mask, detailed=True)
    assert_close(detailed.call(-detailed.image, detailed.mask, detailed=True), other)
    assert_close(first, expected)  # a later call does not overwrite an earlier result
    views = detailed.image.permute(0, 1, 3, 2).contiguous().permute(0, 1, 3, 2), detailed.mask.expand(3, 2, 8)[1]
    assert_close(detailed.call(*views, detailed=True), expected)
    arrays = detailed.call(detailed.image.numpy(), detailed.mask.numpy(), detailed=True)
    assert isinstance(arrays["parts"][1], np.ndarray)
    found = torch.utils._pytree.tree_map(torch.as_tensor, {**arrays, "nothing": 0})
    assert_close(found, {**expected, "nothing": torch.tensor(0)})


def test_unaligned_and_read_only_arrays_are_accepted(detailed):
    unaligned = np.zeros(detailed.image.numel() + 1, "float32")[1:].reshape(detailed.image.shape)
    unaligned[:] = detailed.image
    read_only = detailed.mask.numpy().copy()
    read_only.flags.writeable = False
    passed = detailed.call._to_tvm(detailed.call.inputs[0], detailed.image, {})
    assert torch.utils.dlpack.from_dlpack(passed).data_ptr() == detailed.image.data_ptr()  # not a copy
    expected = detailed.call(detailed.image.numpy(), detailed.mask.numpy(), detailed=True)
    np.testing.assert_array_equal(detailed.call(unaligned, read_only, detailed=True)["scores"], expected["scores"])


def test_state_is_kept_between_calls_until_it_is_reset(detailed, tmp_path):
    torch.manual_seed(0)
    network, tokens = Cached().eval(), torch.randn(6, 2, 4)
    options = {"samples": {"keys": tokens.numpy()}, "project": detailed.project, "progress": False}
    fast = anole.compile(network, tokens[0], **options)
    assert network.n_tokens == 0  # compiling changes nothing
    fast.save(tmp_path / "saved")
    loaded = anole.load(tmp_path / "saved")
    with torch.no_grad():
        expected = [{name: value.clone() for name, value in network(token).items()} for token in tokens]
    for call in (fast, loaded):
        for _ in range(2):
            for token, values in zip(tokens, expected, strict=True):
                assert_close(call(token), values)
            call.reset()
    assert_close(loaded(tokens[0].numpy())["scores"], expected[0]["scores"].numpy())
    assert [error.output for error in fast.benchmark(rounds=1).sample_errors][:2] == ["output_0", "output_1"]


def test_threads_may_call_concurrently(detailed):
    images = [detailed.image * scale for scale in range(8)]
    expected = [detailed.call(image, detailed.mask, detailed=True)["scores"] for image in images]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda image: detailed.call(image, detailed.mask, detailed=True)["scores"], images * 4))
    assert all(torch.equal(*pair) for pair in zip(found, expected * 4, strict=True))


def test_a_saved_build_is_called_in_the_same_way(detailed, tmp_path):
    detailed.call.save(tmp_path / "mine")
    arguments = (detailed.image, detailed.mask)
    loaded = anole.load(tmp_path / "mine")
    assert_close(loaded(*arguments, detailed=True), detailed.call(*arguments, detailed=True))
    with pytest.raises(anole.AnoleError, match="already exists"):
        detailed.call.save(tmp_path / "mine")
    in_order = anole.load(detailed.call.folder)
    assert [info.name for info in in_order.inputs] == ["image", "mask"]
    assert_close(in_order(*arguments), in_order(mask=detailed.mask, image=detailed.image))
    with pytest.raises(anole.AnoleError, match="found 1 inputs in order and none by name; expected image, mask"):
        in_order(detailed.image)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.call(c.image, c.mask), r"the tensors image, mask and the constants \[True\]"),
        (
            lambda c: c.call(c.image[:1], c.mask, detailed=True),
            r"image: found float32 of shape \[1, 3, 9, 9\]; expected .*\[2, 3",
        ),
        (lambda c: c.call(c.image.double(), c.mask, detailed=True), "image: found float64"),
    ],
)
def test_wrong_calls_are_rejected(detailed, call, message):
    with pytest.raises(anole.AnoleError, match=message):
        call(detailed)


@pytest.mark.guard
def test_a_second_call_repeats_nothing_and_layers_are_shared(detailed):
    library = detailed.call.folder / "model.so"
    before, tasks = library.stat().st_mtime_ns, set((detailed.project / "work/tasks").iterdir())
    arguments, project = (detailed.image, detailed.mask), detailed.project
    again = anole.compile(detailed.network, *arguments, kwargs={"detailed": True}, project=project, progress=False)
    assert (again.folder, library.stat().st_mtime_ns) == (detailed.call.folder, before)
    logs = {path.stat().st_mtime_ns for path in (detailed.project / "logs/extract").iterdir()}
    anole.compile(Net(), detailed.image, project=detailed.project, progress=False)
    assert len({path.stat().st_mtime_ns for path in (detailed.project / "logs/extract").iterdir()} - logs) == 1
    assert set((detailed.project / "work/tasks").iterdir()) == tasks


@pytest.mark.guard
def test_a_build_serves_dynamic_shapes_and_is_benchmarked(detailed):
    batch = torch.export.Dim("batch", min=1, max=6)
    options = {"dynamic_shapes": {"image": {0: batch}}, "project": detailed.project, "progress": False}
    compiled = anole.compile(detailed.network, detailed.image, **options)
    for n in (1, 2, 5, 6):
        image = torch.randn(n, 3, 9, 9)
        assert_close(compiled(image), detailed.network(image).detach())
    with pytest.raises(anole.AnoleError, match=r"batch 1\.\.6"):
        compiled(torch.randn(7, 3, 9, 9))
    table = str(detailed.call.benchmark())
    assert detailed.call.folder.name in table and "ONNX Runtime" in table


@pytest.mark.guard
def test_a_tuned_build_is_evaluated_on_own_samples(detailed):
    images = torch.randn(5, 2, 3, 9, 9)
    options = {"trials": 1, "samples": {"image": images}, "project": detailed.project, "progress": False}
    compiled = anole.compile(detailed.network, images[0], **options)
    assert [task.matched for task in compiled.tasks] == ["tuned"] * 2
    benchmark = compiled.benchmark(rounds=1)
    (errors,) = benchmark.sample_errors
    assert (errors.samples, errors.same_top_1) == (5, 5) and str(benchmark).endswith(str(errors))


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ({"picture": torch.zeros(5, 1, 3, 9, 9)}, r"samples\.image: missing; found picture"),
        ({"image": torch.zeros(5, 3, 9, 9)}, r"\(5, 3, 9, 9\); needed .* \(samples, 1, 3, 9, 9\)"),
        ({"image": torch.zeros(())}, r"samples\.image: found shape \(\)"),
        ({"image": torch.zeros(0, 1, 3, 9, 9)}, r"samples\.image: found shape \(0, "),
        ({"image": torch.zeros(5, 2, 3, 9, 9)}, r"samples\.image: found shape \(5, 2, "),
    ],
)
def test_samples_that_do_not_fit_are_rejected_before_a_stage_runs(samples, message, tmp_path):
    class Network(torch.nn.Module):
        def forward(self, image):
            return image.mean(1)

    with pytest.raises(anole.AnoleError, match=message):
        anole.compile(Network(), torch.zeros(1, 3, 9, 9), samples=samples, project=tmp_path, progress=False)
    assert not (tmp_path / "builds").exists() and not list(tmp_path.glob("samples*"))


@pytest.mark.guard
def test_processes_may_use_a_project_at_the_same_time(tmp_path):
    code = f"""if True:
        import anole, sys, torch
        module = torch.nn.Conv2d(3, int(sys.argv[1]), 3)
        x = torch.randn(1, 3, 8, 8)
        compiled = anole.compile(module, x, project={str(tmp_path)!r}, progress=False)
        torch.testing.assert_close(compiled(x), module(x).detach(), rtol=1e-4, atol=1e-5)
    """
    processes = [subprocess.Popen([sys.executable, "-c", code, width]) for width in ("4", "5")]
    assert [process.wait() for process in processes] == [0, 0]
    assert len(list(tmp_path.glob("builds/*/build.json"))) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dynamic_shapes": {"picture": {}}}, "dynamic_shapes: found picture"),
        ({"dynamic_shapes": {"image": {0: torch.export.Dim("n")}}}, r"image\[0\]: found .* with min and max"),
        ({"target": {"kind": "tpu"}}, "tpu"),
        ({"precision": "float8"}, "precision: found 'float8'"),
        ({"kwargs": {"picture": 1}}, "unexpected keyword argument 'picture'"),
    ],
)
def test_wrong_options_change_nothing(detailed, options, message):
    spec = detailed.project / "models.yaml"
    before = spec.read_bytes()
    with pytest.raises(anole.AnoleError, match=message):
        anole.compile(detailed.network, detailed.image, project=detailed.project, **options)
    assert spec.read_bytes() == before


def test_modules_that_builds_cannot_replace_are_rejected(detailed):
    class Writing(torch.nn.Module):
        def forward(self, x):
            return x.add_(1)

    class Growing(Cached):
        def forward(self, x):
            self.keys = torch.cat([self.keys, x], 1)
            return self.keys

    growth = r"keys changes its shape, from \[2, 6, 4\] to \[2, 7, 4\]"
    for module, message in ((Writing(), "Writing: writes to its inputs"), (Growing(), growth)):
        with pytest.raises(anole.AnoleError, match=message):
            anole.compile(module, torch.ones(2, 1, 4), project=detailed.project)


@pytest.mark.guard
def test_a_failed_stage_is_an_error_with_its_message(detailed):
    class Unsupported(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.eigvals(x).real

    with pytest.raises(anole.AnoleError, match=r"linalg_eig.*\(see .*logs/extract/unsupported"):
        anole.compile(Unsupported(), torch.eye(3), project=detailed.project, progress=False)


def test_a_project_of_others_is_not_changed(tmp_path):
    (tmp_path / "models.yaml").write_text("models: {}\n")
    with pytest.raises(anole.AnoleError, match="was not written by"), Workspace(tmp_path).locked():
        pass
    assert (tmp_path / "models.yaml").read_text() == "models: {}\n"


def test_tensors_are_named_after_their_parameters():
    class Nested(torch.nn.Module):
        def forward(self, first, *others, options, **more): ...

    x = torch.ones(1)
    found = CallFormat.of(Nested(), (x, [x, 2], x), {"options": {"a b": x}, "last": x})
    assert found.names == ("first", "others_1_0", "others_2", "options_a_b", "last")
    y, z = torch.zeros(2), torch.zeros(3)
    assert found.tensors((x, [y, 2], x), {"last": z, "options": {"a b": x}}) == [x, y, x, x, z]


def test_importing_anole_imports_neither_torch_nor_tvm():
    code = "import sys, anole; assert not {'torch', 'tvm', 'numpy'} & set(sys.modules), anole.__all__"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.guard
@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_the_example_of_a_page_runs(page, tmp_path, monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", Path(page).read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    names: dict[str, Any] = {}
    exec(code, names)
    assert (tmp_path / "anole/models.yaml").exists()
    assert_close(names["y"], names["module"].eval()(names["x"]).detach())


@pytest.fixture
def onnx_file(tmp_path):
    """A file with a dynamic batch and number of tokens."""
    sizes = ["batch", "tokens", 4]
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "tokens", 2])],
        [helper.make_tensor("w", TensorProto.FLOAT, [4, 2], range(8))],
    )
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), path)
    return path


def run_try(*arguments):
    command = [sys.executable, "-m", "anole", "try", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_dynamic_dimension_without_a_size_is_asked_for(onnx_file, tmp_path):
    done = run_try(onnx_file, "--project", tmp_path / "project")
    assert done.returncode == 2 and "found dynamic dimensions without a size: batch, tokens" in done.stderr
    assert "`--dim batch=1 --dim tokens=16..512`" in done.stderr


@pytest.mark.guard
def test_try_builds_and_compares_a_file(onnx_file, tmp_path):
    options = ("--dim", "batch=1", "--dim", "tokens=2..8", "--project", tmp_path / "project")
    done = run_try(onnx_file, *options)
    assert done.returncode == 0, done.stderr
    assert "1 distinct layer" in done.stdout and "ONNX Runtime" in done.stdout and "Next:" in done.stdout
    options = {"dims": {"batch": 1, "tokens": "2..8"}, "project": tmp_path / "project", "progress": False}
    compiled = anole.compile(onnx_file, **options)
    x = np.random.default_rng(0).standard_normal((1, 5, 4), dtype="float32")
    np.testing.assert_allclose(compiled(x), x @ np.arange(8, dtype="float32").reshape(4, 2), rtol=1e-5)
    with pytest.warns(UserWarning, match="built for 1 threads, but TVM uses"):
        anole.compile(onnx_file, threads=1, **options)


@pytest.mark.guard
def test_try_builds_a_factory_of_this_folder_and_forgets_files_that_are_gone(onnx_file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    workspace = Workspace(tmp_path / "project")
    with workspace.locked():
        workspace.add("gone", {"source": f"onnx:{onnx_file}", "dims": {"batch": 1, "tokens": 2}}, {"kind": "cpu"}, 0)
    onnx_file.unlink()
    Path("nets.py").write_text("import torch\n\ndef small():\n    return torch.nn.Linear(4, 2)\n")
    done = run_try("nets:small", "--input", "x=3,4", "--project", tmp_path / "project")
    assert done.returncode == 0 and "1 distinct layer" in done.stdout, done.stderr
    assert "gone" not in (tmp_path / "project/models.yaml").read_text()

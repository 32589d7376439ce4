from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anole.config.entries import Budget, ModelSpec
from anole.config.reading import OWN_RESOURCES, load_spec, parse_spec
from anole.errors import SpecError
from anole.project.hardware import describe_target
from anole.targets.rpc.address import Remote
from anole_vta.geometry import Geometry

from ..extract.onnx.models import model_of

ISSUE = """
models:
  resnet18:      {source: "torchvision:resnet18",      inputs: {x: [1, 3, 224, 224]}}
  squeezenet1_1: {source: "torchvision:squeezenet1_1", inputs: {x: [1, 3, 224, 224]}}
targets:
  cpu: {kind: cpu}
tuning: {preset: autotvm, trials: 64, seed: 0}
builds:
  - {model: resnet18, target: cpu}
  - {model: squeezenet1_1, target: cpu, trials: 8, seed: 3, preset: random, name: small}
"""
REMOTE = {"rpc": "tracker:9190", "key": "zen"}
REMOTE_CPU = {"kind": "cpu", "mcpu": "x86-64-v3", "threads": 8, "measure": REMOTE}


def plain() -> dict[str, Any]:
    shape = {"x": [1, 3, 32, 32]}
    return {
        "models": {
            "one": {"source": "torchvision:resnet18", "inputs": shape},
            "two": {"source": "torchvision:alexnet", "inputs": shape},
        },
        "targets": {"cpu": {"kind": "cpu"}},
        "tuning": {"preset": "autotvm", "trials": 4},
        "builds": [{"model": "one", "target": "cpu"}, {"model": "two", "target": "cpu"}],
    }


def change(path: str, value: object) -> dict[str, Any]:
    """Return the plain spec with one value set, or removed if it is `...`."""
    mapping = plain()
    *above, last = [int(step) if step.isdecimal() else step for step in path.split(".")]
    place: Any = mapping
    for step in above:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return mapping


def pattern(message: str) -> str:
    """Return the pattern of an error that begins with a message, where `...` matches anything."""
    return "^models.yaml: " + ".*".join(map(re.escape, message.split(" ... ")))


def test_reads_the_example_of_the_readme(tmp_path: Path) -> None:
    file = tmp_path / "models.yaml"
    file.write_text(ISSUE)
    spec = load_spec(file)
    assert spec.models["resnet18"] == ModelSpec("resnet18", "torchvision:resnet18", {"x": (1, 3, 224, 224)})
    first, second = spec.builds.values()
    assert (first.name, first.model, first.target) == ("resnet18-cpu-autotvm", "resnet18", "cpu")
    assert (first.budget, first.tuning, first.seed) == (Budget(64), {"preset": "autotvm"}, 0)
    assert (second.name, second.budget.trials, second.seed) == ("small", 8, 3)
    assert (second.tuning, spec.tuning) == ({"preset": "random"}, {"preset": "autotvm"})


def test_tuning_may_be_left_out_and_trials_may_be_zero() -> None:
    builds = parse_spec(change("tuning", ...)).builds
    assert [build.budget for build in builds.values()] == [Budget(64)] * 2
    assert parse_spec(change("tuning.trials", 0)).builds["one-cpu-autotvm"].budget.trials == 0


def test_a_budget_is_per_task_or_shared() -> None:
    shared = {**plain(), "tuning": {"total_trials": 500}}
    shared["builds"][1]["trials"] = 9
    first, second = parse_spec(shared).builds.values()
    assert (first.budget, second.budget) == (Budget(500, shared=True), Budget(9))
    (own, _) = parse_spec(change("builds.0.total_trials", 300)).builds.values()
    assert own.budget == Budget(300, shared=True) and "total_trials" not in own.tuning
    (timed, _) = parse_spec({**shared, "tuning": {"total_seconds": 60}}).builds.values()
    assert (timed.budget, timed.budget.max_trials) == (Budget(None, shared=True, seconds=60), 10_000)
    assert "total_seconds" not in timed.tuning
    assert parse_spec({**plain(), "tuning": {"total_seconds": 0}}).builds["one-cpu-anole"].budget.max_trials == 0


def test_builds_can_override_refine() -> None:
    assert [build.refine for build in parse_spec(plain()).builds.values()] == [0, 0]
    own = {**plain(), "tuning": {"refine": 3}}
    own["builds"][1]["refine"] = 0
    one, two = parse_spec(own).builds.values()
    assert (one.refine, two.refine) == (3, 0)
    assert one.tuning == two.tuning == {"preset": "anole"}


@pytest.mark.parametrize(
    ("target", "place"),
    [({"kind": "cuda", "arch": "sm_90"}, "of kind cuda"), ({"kind": "vta"}, "of kind vta"), (REMOTE_CPU, "remote")],
)
def test_refining_needs_this_machines_cpu(target: dict[str, Any], place: str) -> None:
    mapping = {**plain(), "targets": {"cpu": {"kind": "cpu"}, "other": target}, "tuning": {"refine": 2}}
    mapping["builds"][1]["target"] = "other"
    with pytest.raises(SpecError) as caught:
        parse_spec(mapping)
    assert str(caught.value) == (
        "models.yaml: builds[1]: found refine: 2, which requires this machine's CPU; "
        f"target other is {place}; set `refine: 0` for the build"
    )
    mapping["builds"][1]["refine"] = 0
    assert parse_spec(mapping).builds["two-other-anole"].refine == 0


@pytest.mark.parametrize("trials", [2, "2"])
def test_overrides_are_merged_into_the_file(tmp_path: Path, trials: object) -> None:
    file = tmp_path / "models.yaml"
    file.write_text(ISSUE)
    spec = load_spec(file, {"tuning": {"trials": trials}})
    assert spec.builds["resnet18-cpu-autotvm"].budget.trials == 2
    assert spec.builds["resnet18-cpu-autotvm"].tuning["preset"] == "autotvm"
    with pytest.raises(SpecError, match="extra: is unknown"):
        load_spec(file, {"extra": {"trials": 1}})


@pytest.mark.parametrize(
    ("measure", "remote"),
    [
        (REMOTE, Remote("tracker", 9190, "zen")),
        ({**REMOTE, "servers": 3}, Remote("tracker", 9190, "zen", servers=3)),
        ({"rpc": "10.0.0.7:9090"}, Remote("10.0.0.7", 9090)),
        ({"rpc": ["a:1"]}, Remote("a", 1)),
        ({"rpc": ["a:1", "[::1]:2", "a:3"]}, Remote("a", 1, others=(("[::1]", 2), ("a", 3)))),
    ],
)
def test_location_of_devices_is_not_part_of_the_description(measure: dict[str, Any], remote: Remote) -> None:
    assert Remote.from_json(remote.to_json()) == remote
    assert isinstance(measure["rpc"], list) or remote.to_json() == measure
    for one in ({**REMOTE_CPU, "model": "EPYC 9000"}, {"kind": "cuda", "arch": "sm_90"}):
        target = parse_spec(change("targets.cpu", {**one, "measure": measure})).targets["cpu"]
        assert target.remote == remote
        assert describe_target(target) == describe_target(parse_spec(change("targets.cpu", one)).targets["cpu"])
    assert parse_spec(plain()).targets["cpu"].remote is None


def test_a_remote_cpu_is_named_by_its_key_and_not_detected() -> None:
    features = ["sse4_2", "avx", "f16c", "fma", "avx2"]
    described = {"kind": "cpu", "mcpu": "x86-64-v3", "model": "zen", "features": features, "threads": 8}
    assert describe_target(parse_spec(change("targets.cpu", REMOTE_CPU)).targets["cpu"]) == described
    single = {**REMOTE_CPU, "measure": {"rpc": "tracker:9190"}, "model": "EPYC 9000", "threads": 4096}
    described |= {"model": "EPYC 9000", "threads": 4096}
    assert describe_target(parse_spec(change("targets.cpu", single)).targets["cpu"]) == described


NODES = {"partition": "amd", "constraint": "zen5", "priority": 0}


@pytest.mark.parametrize("given", [{}, {"threads": 8}, {"mcpu": "znver5", "threads": 8, "model": "EPYC 9755"}])
def test_choice_of_nodes_is_not_part_of_the_settings(given: dict[str, Any]) -> None:
    target = parse_spec(change("targets.cpu", {"kind": "cpu", **given, "nodes": NODES})).targets["cpu"]
    assert (target.nodes, target.settings) == (NODES, given)
    assert parse_spec(plain()).targets["cpu"].nodes == {}


@pytest.mark.parametrize("name", OWN_RESOURCES)
def test_nodes_cannot_use_resources_that_anole_sets(name: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec(change("targets.cpu.nodes", {**NODES, name: 1}))
    assert str(caught.value) == (
        f"models.yaml: targets.cpu.nodes.{name}: is not a resource that chooses a node; "
        "use for example `partition` or `node_selector`"
    )


MISTAKES = [
    ("targets.cpu.measure", {"key": "zen"}, ": has no `rpc`"),
    ("targets.cpu.measure", {"rpc": "zen"}, ".rpc: found 'zen' ... `host:port`"),
    ("targets.cpu.measure", {"rpc": "zen:0"}, ".rpc: found 'zen:0' ... `host:"),
    ("targets.cpu.measure", {"rpc": []}, ".rpc: found [] ... a list with at"),
    ("targets.cpu.measure", {"rpc": ["a:1", "b"]}, ".rpc[1]: found 'b'"),
    ("targets.cpu.measure", {"rpc": ["a:1", "a:1"]}, ".rpc[1]: found 'a:1' a ... once"),
    (
        "targets.cpu.measure",
        {"rpc": ["a:1", "b:1"], "key": "zen"},
        ".rpc: found a list and a key; a key requires the address of a tracker",
    ),
    ("targets.cpu.measure", {"rpc": "a:1", "servers": 2}, ".servers: found without a key"),
    ("targets.cpu.measure", {**REMOTE, "servers": 0}, ".servers: found 0 ... least 1"),
    ("targets.cpu.measure", {**REMOTE, "key": ""}, ".key: found '' ... a text"),
    ("targets.cpu.measure", {**REMOTE, "port": 1}, ".port: is unknown ... rpc"),
    ("targets.cpu.measure", "zen:1", ": found 'zen:1'; a mapping"),
    ("targets.cpu.measure", REMOTE, "targets.cpu: has no `mcpu` ... cannot be detected"),
    (
        "targets.cpu",
        {"kind": "cpu", "mcpu": "x86-64", "measure": REMOTE},
        ": has no `threads`; a CPU measured elsewhere",
    ),
    ("targets.cpu", {**REMOTE_CPU, "measure": {"rpc": "zen:1"}}, ": has no `model` ... without a `key`"),
    ("targets.cpu", {"kind": "cuda", "measure": REMOTE}, ": has no `arch`"),
    ("targets.cpu.model", "zen", ": is the name of another machine's ... `measure`"),
    (
        "targets.cpu",
        {**REMOTE_CPU, "nodes": {"partition": "amd"}},
        ".nodes: cannot be combined with `measure` ... remove one of them",
    ),
    ("targets.cpu.nodes", {}, ": is empty ... `nodes: {partition: amd}`"),
    ("targets.cpu.nodes", "amd", ": found 'amd'; a mapping"),
    (
        "targets.cpu.nodes",
        {"kubernetes.io/arch": "amd64"},
        ".kubernetes.io/arch: is not a resource that chooses a node ... `partition`",
    ),
    ("targets.cpu.nodes", {"qos": 1.5}, ".qos: found 1.5 ... integer"),
    ("targets.cpu.nodes", {"qos": True}, ".qos: found True ... integer"),
    ("targets.cpu.nodes", {"qos": ""}, ".qos: found '' ... a text"),
    ("modles", {}, ": is unknown ... did you mean 'models'?"),
    ("models", ..., "has no `models`"),
    ("models", {}, ": is empty"),
    ("models", [1], ": found [1]; a mapping is expected"),
    ("models.one", "resnet18", ": found 'resnet18' ... a mapping"),
    ("models.one.sauce", "x", ": is unknown ... 'source'"),
    ("models.one.source", ..., "models.one: has no `source`"),
    ("models.one.source", 3, ": found 3; a text"),
    ("models.one.source", "keras:x", ": found 'keras:x' ... onnx:<path>"),
    ("models.one.source", "alexnet", ": found 'alexnet' ... torchvision:<name>"),
    (
        "models.one.source",
        "torchvision:resnet81",
        ": found 'resnet81', which is not a torchvision model ... 'resnet18'",
    ),
    ("models.one.source", "onnx:none.onnx", ": found no file 'none.onnx'"),
    ("models.one.inputs", ..., "models.one: has no `inputs` ... x: [1, 3, 224, 224]"),
    ("models.one.inputs", [1, 3], ": found [1, 3]; a mapping"),
    ("models.one.inputs.x", [1, -1], "[1]: found -1; an integer ... 0"),
    ("models.one.inputs.x", [1, "3"], "[1]: found '3' ... integer"),
    ("models.one.inputs.x", [True], "[0]: found True ... integer"),
    (
        "models.one.inputs.x",
        {"shape": [1, 3], "dtype": "int46"},
        ".dtype: found 'int46', which is not an input type ... 'int64'",
    ),
    ("models.one.inputs.x", {"dtype": "int64"}, ": has no `shape`"),
    ("models.a/b", {}, "models: found 'a/b'; a name consists of"),
    ("models", {5: {}}, ": found the key 5 ... quote it"),
    ("targets.cpu", {}, ": has no `kind`"),
    ("targets.cpu.kind", "gpu", ": found 'gpu' ... allowed: cpu"),
    ("targets.cpu.thread", 2, ": is unknown ... 'threads'"),
    ("targets.cpu.threads", 0, ": found 0; an integer ... at least 1"),
    ("targets.cpu.required", "no", ": found 'no'; true or false is expected"),
    ("targets.cpu.max_relative_error", 0, ": found 0; a number from 1e-05 to 0.01"),
    ("targets.cpu.max_relative_error", 0.1, ": found 0.1 ... to 0.01"),
    ("targets.cpu.max_relative_error", "small", ": found 'small' ... a number"),
    ("targets.cpu.max_relative_error", True, ": found True ... a number"),
    ("targets.cpu.exact", "yes", ": found 'yes'; true or false"),
    ("targets.cpu.precision", "bf61", ": found 'bf61', which is not a precision ... bf16"),
    ("targets.cpu.weights", "int2", ": found 'int2', which is not a type of weights ... int8"),
    ("targets.cpu.precision", 16, ": found 16 ... text"),
    ("targets.cpu.space", "opne", ": found 'opne', which is not a kind of space ... open"),
    ("targets.cpu.space", True, ": found True ... text"),
    ("targets.cpu.threads", "all", ": found 'all' ... integer"),
    ("targets.cpu.mcpu", "znver9", ": found 'znver9' ... 'znver"),
    ("tuning.trials", -1, ": found -1; an integer of at least 0"),
    ("tuning.total_trials", 9, ": found together with trials ... `trials` for each task"),
    ("tuning.total_seconds", 9, ": found together with trials ... `total_seconds` for all tasks"),
    ("builds.0.total_seconds", 1.5, ": found 1.5 ... integer"),
    ("tuning.trials", 1.5, ": found 1.5 ... integer"),
    ("tuning.seed", -3, ": found -3 ... integer"),
    ("tuning.refine", "all", ": found 'all'; an integer of at least 0"),
    ("builds.1.refine", -1, ": found -1; an integer ... at least 0"),
    ("tuning", [], ": found []; a mapping is expected"),
    ("builds", {}, ": found {}; a list"),
    ("builds", [], ": found []; a list with at least one"),
    ("builds.1.model", ..., "builds[1]: has no `model`; it has target"),
    ("builds.1.model", "tow", ": found 'tow', which is not one of the models ... 'two'"),
    ("builds.0.target", "cuda", ": found 'cuda' ... allowed: cpu"),
    ("builds.0.trials", "many", ": found 'many' ... integer"),
    ("builds.0.name", "../x", ": found '../x'; a name"),
    ("builds.1.model", "one", "builds[1]: found a second build named 'one-cpu-autotvm' ... builds[0]"),
]
"""A path in the plain spec, the value to set there, and the message, where `...` matches anything.

Messages that begin with a colon, a dot or a bracket are prefixed with the path.
"""


@pytest.mark.parametrize(("path", "value", "message"), MISTAKES)
def test_mistakes_are_reported_with_their_path(path: str, value: object, message: str) -> None:
    place = re.sub(r"\.(\d+)", r"[\1]", path) if message[0] in ":.[" else ""
    with pytest.raises(SpecError, match=pattern(f"{place}{message}")) as caught:
        parse_spec(change(path, value))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("# only a comment\n", "is empty"),
        ("- a\n- b\n", "found ['a', 'b']; a mapping is expected"),
        ("models: [1,\ntargets: {}\n", "line 3, column 1: expected ',' or ']'"),
        ("models: {}\n\ttargets: {}\n", "line 2, column 1: "),
        ("models: {}\nmodels: {}\n", "line 2, column 1: the key 'models' is given twice"),
        ("models: \x00\n", "line 1, column 9: is not YAML: found the character"),
    ],
)
def test_a_file_that_is_not_a_mapping_is_rejected(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "models.yaml"
    file.write_text(text)
    with pytest.raises(SpecError) as caught:
        load_spec(file)
    assert str(caught.value).startswith(f"{file}: {message}")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["models", "targets", "builds", "tuning", "source", "inputs", "model", "x"]),
                inner,
                max_size=4,
            )
        ),
        max_leaves=20,
    )
)
def test_any_value_raises_only_spec_errors(value: object) -> None:
    with pytest.raises(SpecError):
        parse_spec(value)


def test_a_target_that_does_not_fit_this_machine_is_a_spec_error() -> None:
    spec = parse_spec(change("targets.cpu.threads", 100_000))
    with pytest.raises(SpecError, match=r"models.yaml: targets.cpu: found threads: 100000"):
        describe_target(spec.targets["cpu"])


@pytest.mark.parametrize(
    ("target", "default", "other"),
    [
        ({"kind": "cpu"}, {"space": "constrained"}, {"space": "open"}),
        ({"kind": "cuda", "arch": "sm_90"}, {"space": "constrained"}, {"space": "open"}),
        ({"kind": "cpu"}, {"max_relative_error": "1e-4"}, {"max_relative_error": 1e-3}),
        ({"kind": "cpu"}, {"exact": False}, {"exact": True}),
    ],
)
def test_default_settings_are_left_out_of_the_description(
    target: dict[str, Any], default: dict[str, Any], other: dict[str, Any]
) -> None:
    def described(**settings: object) -> dict[str, Any]:
        return describe_target(parse_spec(change("targets.cpu", {**target, **settings})).targets["cpu"])

    plain = described()
    assert described(**default) == plain and not default.keys() & plain.keys()
    assert described(**other) == {**plain, **other}


ACCELERATORS = {
    "unknown key": ({"block": 16}, ".block: is unknown", "geometry"),
    "key of a cpu": ({"threads": 1}, ".threads: is unknown", "hardware"),
    "geometry a name": ({"geometry": "large"}, ": geometry: found 'large'; use a name such as 1x16x16_i8", ""),
    "geometry nothing": ({"geometry": None}, ": geometry: found None; allowed are default, a name", ""),
    "unknown field": ({"geometry": {"blocks": 16}}, ": geometry.blocks: is unknown; allowed", "block_in"),
    "number as field": ({"geometry": {16: 16}}, ": geometry.16: is unknown; allowed", "block_in"),
    "no power of two": ({"geometry": {"block_in": 24}}, ": geometry.block_in: found 24; allowed", "power"),
    "list as size": ({"geometry": {"block_in": [16]}}, ": geometry.block_in: found [16]; allowed", "power"),
    "unknown variant": ({"geometry": {"variant": "tpu"}}, ": geometry.variant: found 'tpu'", "vta++"),
    "large element": ({"geometry": {"block_in": 4096}}, ": geometry: an element of ", "4096 are allowed"),
    "deep buffers": ({"geometry": {"wgt_bytes": 1 << 30}}, ": geometry: the buffers are too deep", ""),
    "unknown hardware": ({"hardware": "find"}, ": hardware: found 'find'; allowed are fixed, search", ""),
    "hardware a list": ({"hardware": ["search"]}, ": hardware: found ['search']; allowed", ""),
    "unknown place": ({"first_layer": "npu"}, ": first_layer: found 'npu'; allowed are host, vta", ""),
    "bound when fixed": ({"area_max": 2}, ": area_max: is allowed only with `hardware: search`", ""),
    "bound of nothing": ({"hardware": "search", "area_max": 0}, ": area_max: found 0; use a positive number", ""),
    "text as bound": ({"hardware": "search", "penalty": "1"}, ": penalty: found '1'; use a positive number", ""),
    "no clock": ({"frequency_mhz": 0}, ": frequency_mhz: found 0; use a positive number", ""),
    "clock a text": ({"frequency_mhz": "fast"}, ": frequency_mhz: found 'fast'; use a positive number", ""),
    "clock a bool": ({"frequency_mhz": True}, ": frequency_mhz: found True; use a positive number", ""),
    "endless clock": ({"frequency_mhz": float("inf")}, ": frequency_mhz: found inf; use a positive number", ""),
}


@pytest.mark.parametrize(("settings", "start", "mention"), ACCELERATORS.values(), ids=ACCELERATORS.keys())
def test_mistakes_in_an_accelerator_are_reported_with_their_path(
    settings: dict[str, Any], start: str, mention: str
) -> None:
    with pytest.raises(SpecError) as caught:
        describe_target(parse_spec(change("targets.npu", {"kind": "vta", **settings})).targets["npu"])
    assert str(caught.value).startswith(f"models.yaml: targets.npu{start}")
    assert mention in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_accelerator_has_a_complete_description() -> None:
    settings = {"kind": "vta", "geometry": {"block_out": 32}, "hardware": "search", "memory_max": 2}
    description = describe_target(parse_spec(change("targets.npu", settings)).targets["npu"])
    assert description["geometry"] == Geometry(block_out=32).to_json()
    assert (description["hardware"], description["memory_max"], description["area_max"]) == ("search", 2.0, 2.0)


def test_samples_are_a_file_of_the_project(tmp_path: Path) -> None:
    mapping = change("models.one.samples", "data/samples.npz")
    with pytest.raises(SpecError, match=pattern(f"models.one.samples: found no file data/samples.npz in {tmp_path}")):
        parse_spec(mapping, project=tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data/samples.npz").write_bytes(b"")
    assert parse_spec(mapping, project=tmp_path).models["one"].samples == "data/samples.npz"
    with pytest.raises(SpecError, match=r"models\.one\.samples: found \[1\]"):
        parse_spec(change("models.one.samples", [1]), project=tmp_path)


@pytest.mark.parametrize("samples", [None, "samples.npz"])
def test_a_model_survives_its_plain_form(samples: str | None) -> None:
    model = ModelSpec("m", "torch:nets:tiny", {"x": (1, 3, 8, 8), "y": (2,)}, samples, {"y": "int64"})
    assert ModelSpec.from_json("m", model.to_json()) == model
    assert ("samples" in model.to_json()) == (samples is not None)
    assert (model.scheme, model.location) == ("torch", "nets:tiny")


def test_inputs_may_have_types(tmp_path: Path) -> None:
    typed = {"ids": {"shape": [1, 4], "dtype": "int64"}, "x": {"shape": [2], "dtype": "float32"}, "y": [3]}
    (model, _) = parse_spec(change("models.one.inputs", typed)).models.values()
    assert model.inputs == {"ids": (1, 4), "x": (2,), "y": (3,)} and model.dtypes == {"ids": "int64"}
    (tmp_path / "net.onnx").touch()
    of_file = {"source": "onnx:net.onnx", "inputs": typed}
    with pytest.raises(SpecError, match=r"models\.one\.inputs\.ids\.dtype: is defined by the ONNX file"):
        parse_spec(change("models.one", of_file), project=tmp_path)


def onnx_model(tmp_path: Path, **settings: object) -> ModelSpec:
    (tmp_path / "net.onnx").touch()
    entry = {"source": "onnx:net.onnx", **settings}
    return parse_spec(change("models.one", entry), project=tmp_path).models["one"]


def test_inputs_dims_and_outputs_of_an_onnx_file_can_be_set(tmp_path: Path) -> None:
    inputs = {"x": [1, 3], "rate": {"value": 16000}, "lengths": {"value": [[1, 2.5], [3, True]]}}
    model = onnx_model(tmp_path, inputs=inputs, dims={"batch": 2, "?": 3}, outputs=["scores", "boxes"])
    assert (model.inputs, model.dims, model.outputs) == ({"x": (1, 3)}, {"batch": 2, "?": 3}, ("scores", "boxes"))
    assert model.values == {"rate": 16000, "lengths": [[1, 2.5], [3, True]]}
    assert ModelSpec.from_json("one", json.loads(json.dumps(model.to_json()))) == model
    # Manifests hold the entry, which must not change because of unused keys.
    plain = onnx_model(tmp_path, inputs={"x": [1, 3]}).to_json()
    assert plain == {"source": "onnx:net.onnx", "inputs": [["x", [1, 3]]]}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dims": {"batch": -1}}, "dims.batch: found -1; an integer of at least 0"),
        ({"dims": {"batch": "2"}}, "dims.batch: found '2'; an integer"),
        ({"dims": [1]}, "dims: found [1]; a mapping is expected"),
        ({"outputs": []}, "outputs: found []; a list with at least one element"),
        ({"outputs": "y"}, "outputs: found 'y'; a list"),
        ({"outputs": ["y", "z", "y"]}, "outputs[2]: found 'y' twice"),
        ({"outputs": [1]}, "outputs[0]: found 1; a text is expected"),
        ({"inputs": {"x": {"value": "fast"}}}, "inputs.x.value: found 'fast'; a number from"),
        ({"inputs": {"x": {"value": [[1], [1, 2]]}}}, "inputs.x.value: found lists of different lengths"),
        ({"inputs": {"x": {"value": []}}}, "inputs.x.value: found []; a list with at least one element"),
        ({"inputs": {"x": {"value": [0] * 10_000}}}, "inputs.x.value: found more than 10000 numbers and lists"),
        ({"inputs": {"x": {"value": 1, "shape": [1]}}}, "inputs.x.shape: is unknown; "),
        ({"inputs": {"y": [1]}}, "inputs.y: net.onnx has no such input; allowed: x, rate"),
        ({"inputs": {"rat": {"value": 1}}}, "inputs.rat: net.onnx has no such input; did you mean 'rate'?"),
        ({"dims": {"batsch": 1}}, "dims.batsch: net.onnx has no such dynamic dimension; did you mean 'batch'?"),
        ({"outputs": ["sum", "max"]}, "outputs[1]: found 'max', which is not computed by an operator of net.onnx; "),
        ({"outputs": ["x"]}, "outputs[0]: found 'x', which is not computed by an operator of net.onnx; allowed: sum"),
    ],
)
def test_mistakes_in_settings_of_an_onnx_file(tmp_path: Path, settings: dict[str, object], message: str) -> None:
    graph = "(float[batch,3] x, float rate) => (float[] sum) {sum = Add (x, rate)}"
    onnx.save(model_of(graph), tmp_path / "net.onnx")
    allowed = {"inputs": {"x": [1, 3], "rate": {"value": 2}}, "dims": {"batch": 1}, "outputs": ["sum"]}
    assert onnx_model(tmp_path, **allowed).outputs == ("sum",)
    with pytest.raises(SpecError, match=pattern(f"models.one.{message}")):
        onnx_model(tmp_path, **settings)


@pytest.mark.parametrize("settings", [{"dims": {"n": 1}}, {"outputs": ["y"]}])
def test_only_onnx_files_have_names_for_dimensions_and_values(settings: dict[str, object]) -> None:
    entry = {"source": "torchvision:resnet18", "inputs": {"x": [1, 3, 224, 224]}, **settings}
    with pytest.raises(SpecError, match="is only for ONNX files, which name dimensions and values"):
        parse_spec(change("models.one", entry))
    entry = {"source": "torchvision:resnet18", "inputs": {"x": {"value": 1}}}
    with pytest.raises(SpecError, match=r"models\.one\.inputs\.x"):
        parse_spec(change("models.one", entry))

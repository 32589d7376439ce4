"""Parse and check models.yaml; every mistake raises a `SpecError` with its YAML path."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from math import prod
from os.path import isfile
from pathlib import Path
from typing import Any

from anole.config.accelerators import read_accelerator
from anole.config.entries import Budget, BuildSpec, ModelSpec, RangeCollector, Spec, TargetSpec
from anole.config.onnx_files import onnx_names
from anole.config.source import check_source
from anole.config.yaml_file import read_yaml
from anole.errors import TargetError, shown, suggestion
from anole.node import Node
from anole.search import DEFAULT_PRESET
from anole.targets import all_kinds, get_kind
from anole.targets.rpc.address import Remote

_BUDGETS = ("total_seconds", "total_trials", "trials")
"""The mutually exclusive budgets in `tuning`; if the defaults have several, the first one applies."""

_NON_TUNER_SETTINGS = (*_BUDGETS, "seed", "refine")
"""The settings in `tuning` that are not passed to the tuner; all are integers."""

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")

OWN_RESOURCES = ("_cores", "_nodes", "device", "gpu", "mem", "mem_mb", "mem_mib", "nodes", "threads")
"""The job resources that Anole or Snakemake sets, which cannot choose a node."""

_MAX_NAME_LENGTH = 80
"""The maximum length of a name other than a build's; two such names and a key form a file name."""

_MAX_BUILD_NAME_LENGTH = 200
"""The maximum length of a build's name, which names a folder and a file."""

_MAX_ELEMENTS = 2**31
"""The maximum number of elements of an input."""

_RANGE_NAME = "the name of a range consists of letters, digits and underscores, and does not start with a digit"

_MAX_VALUE_ELEMENTS = 10_000
"""The maximum number of numbers and lists in an input's constant value, which the database stores in each manifest."""

_MAX_MAGNITUDE = 1e300

_DTYPES = ("float32", "int32", "int64", "bool")
"""The allowed input types of a torch network, the first by default; an ONNX file names its own."""


def load_spec(path: Path | str = "models.yaml", overrides: Mapping[str, Any] | None = None) -> Spec:
    """Read and check models.yaml, after merging overrides from ``snakemake --config`` recursively.

    Raises:
        SpecError: the file is missing, is not YAML, or holds a mistake.
    """
    mapping = read_yaml(Path(path))
    if overrides:
        mapping = _merge(mapping, overrides)
    return parse_spec(mapping, str(path), Path(path).parent)


def parse_spec(mapping: object, file: str = "models.yaml", project: Path = Path()) -> Spec:
    """Check the content of models.yaml; raise SpecError for the first mistake."""
    top = Node(mapping, "", file).mapping(
        allowed=("models", "targets", "tuning", "builds", "accelerators"), required=("models", "targets")
    )
    if "accelerators" not in top:
        Node(mapping, "", file).mapping(required=("builds",))
    models = {name: _model(name, node, project) for name, node in _named_entries(top["models"])}
    targets = {name: _target(name, node) for name, node in _named_entries(top["targets"])}
    defaults = top["tuning"].mapping() if "tuning" in top else {}
    tuning: dict[str, Any] = {"preset": DEFAULT_PRESET, "trials": 64, "seed": 0, "refine": 0, **_tuning(defaults)}
    builds: dict[str, BuildSpec] = {}
    for node in top["builds"].items() if "builds" in top else ():
        build = _build(node, tuning, models, targets)
        if build.name in builds:
            raise node.error(
                f"found a second build named {build.name!r}, after {builds[build.name].path}; "
                "give one of them a different `name`"
            )
        builds[build.name] = build
    entries = _named_entries(top["accelerators"]) if "accelerators" in top else ()
    accelerators = {name: read_accelerator(name, node, models, targets) for name, node in entries}
    return Spec(models, targets, builds, _tuner_settings(tuning), file, accelerators)


def _model(name: str, node: Node, project: Path) -> ModelSpec:
    entry = node.mapping(allowed=("source", "inputs", "dims", "outputs", "samples"), required=("source",))
    check_source(entry["source"], project)
    source = entry["source"].text()
    is_onnx = source.startswith("onnx:")
    nodes = entry["inputs"].mapping() if "inputs" in entry else {}
    fixed = {key for key, item in nodes.items() if is_onnx and isinstance(item.value, dict) and "value" in item.value}
    collector = RangeCollector()
    inputs, dtypes = _inputs({key: item for key, item in nodes.items() if key not in fixed}, is_onnx, collector)
    if not inputs and not is_onnx:
        raise node.error("has no `inputs`; give each input's shape, such as `inputs: {x: [1, 3, 224, 224]}`")
    for key in ("dims", "outputs"):
        if key in entry and not is_onnx:
            raise entry[key].error("is only for ONNX files, which name dimensions and values")
    dims = entry["dims"].mapping() if "dims" in entry else {}
    outputs = entry["outputs"].items() if "outputs" in entry else []
    model = ModelSpec(
        name,
        source,
        inputs,
        _file(entry["samples"], project) if "samples" in entry else None,
        dtypes,
        {key: _extent(size, key, collector) for key, size in dims.items()},
        _outputs(outputs),
        {key: _constant_value(nodes[key]) for key in nodes if key in fixed},
        collector.ranges,
        collector.named,
    )
    if is_onnx and (nodes or dims or outputs):
        _check_names(project / model.location, nodes, dims, outputs)
    return model


def _check_names(file: Path, inputs: Mapping[str, Node], dims: Mapping[str, Node], outputs: Iterable[Node]) -> None:
    """Raise a `SpecError` for a name that an ONNX file does not have."""
    names = onnx_names(file)
    if names is None:
        return
    for name, node in inputs.items():
        if name not in names.inputs:
            raise node.error(f"{file.name} has no such input; {suggestion(name, names.inputs)}")
    for name, node in dims.items():
        if name not in names.symbols:
            raise node.error(f"{file.name} has no such dynamic dimension; {suggestion(name, names.symbols)}")
    for node in outputs:
        node.choice(names.computed, f"computed by an operator of {file.name}")


def _inputs(
    nodes: Mapping[str, Node], is_onnx: bool, collector: RangeCollector
) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """Return the shape of each input, and the types of those that are not float32."""
    shapes, dtypes = {}, {}
    for name, node in nodes.items():
        if not isinstance(node.value, dict):
            shapes[name] = _shape(node, name, collector)
            continue
        typed = node.mapping(allowed=("shape", "dtype"), required=("shape", "dtype"))
        shapes[name], dtype = _shape(typed["shape"], name, collector), typed["dtype"].choice(_DTYPES, "an input type")
        if is_onnx:
            raise typed["dtype"].error("is defined by the ONNX file; give only the shape")
        if dtype != _DTYPES[0]:
            dtypes[name] = dtype
    return shapes, dtypes


def _constant_value(node: Node) -> Any:
    """Return the constant value of an input: a number, a boolean or a nested list of them."""
    value = node.mapping(allowed=("value",))["value"]
    nodes, n_numbers = [value], 0
    while nodes:
        item = nodes.pop()
        n_numbers += 1
        if n_numbers > _MAX_VALUE_ELEMENTS:
            raise value.error(f"found more than {_MAX_VALUE_ELEMENTS} numbers and lists, the maximum")
        if isinstance(item.value, list):
            if len({len(value) if isinstance(value, list) else None for value in item.value}) > 1:
                raise item.error("found lists of different lengths; nested lists must have the same length")
            nodes += item.items()
        elif not isinstance(item.value, bool):
            item.number(-_MAX_MAGNITUDE, _MAX_MAGNITUDE)
    return value.value


def _outputs(nodes: Iterable[Node]) -> tuple[str, ...]:
    names: list[str] = []
    for node in nodes:
        if node.text() in names:
            raise node.error(f"found {node.value!r} twice; name each output once")
        names.append(node.text())
    return tuple(names)


def _file(node: Node, project: Path) -> str:
    path = node.text()
    if not isfile(project / path):
        raise node.error(f"found no file {path} in {project.resolve()}")
    return path


def _shape(node: Node, name: str, collector: RangeCollector) -> tuple[int, ...]:
    nodes = [] if node.value == [] else node.items()
    extents = [_parse_range(item, collector) if isinstance(item.value, dict) else item.whole(least=0) for item in nodes]
    shape = collector.shape(name, extents)
    symbols = collector.named.get(name, (None,) * len(shape))
    sizes = [collector.ranges[symbol].max if symbol else size for symbol, size in zip(symbols, shape, strict=True)]
    if prod(sizes) > _MAX_ELEMENTS:
        raise node.error(f"found {str(list(shape))[:80]}; an input has at most {_MAX_ELEMENTS} elements")
    return shape


def _parse_range(node: Node, collector: RangeCollector) -> dict[str, str]:
    """Return the name and the range of a variable extent."""
    entry = node.mapping()
    if len(entry) != 1:
        raise node.error(f"found {shown(node.value)}; a variable extent is one name with its range: {{batch: 1..16}}")
    ((symbol, size),) = entry.items()
    if not symbol.isidentifier():
        raise node.error(f"found the name {symbol!r}; {_RANGE_NAME}")
    size.text()
    _size(size, symbol, collector)
    return {symbol: size.text()}


def _extent(node: Node, symbol: str, collector: RangeCollector) -> int:
    """Return a size, or the typical size of a range."""
    is_range = isinstance(node.value, str) and ".." in node.value
    if is_range and not symbol.isidentifier():
        raise node.error(f"found a range of {symbol!r}; {_RANGE_NAME}. Give the shapes in `inputs` instead")
    return _size(node, symbol, collector) if is_range else node.whole(least=0, most=_MAX_ELEMENTS)


def _size(node: Node, symbol: str, collector: RangeCollector) -> int:
    try:
        return collector.size(symbol, node.value)
    except ValueError as error:
        raise node.error(str(error)) from error


def _target(name: str, node: Node) -> TargetSpec:
    entry = node.mapping(required=("kind",))
    kind_name = entry["kind"].text()
    try:
        kind = get_kind(kind_name)
    except TargetError as error:
        entry["kind"].choice(all_kinds(), "a kind of target")
        raise entry["kind"].error(str(error)) from error
    remote_keys = ("measure",) if kind.measurable_elsewhere else ()
    node.mapping(allowed=("kind", *kind.setting_names, *remote_keys, "required", "nodes"))
    required = entry["required"].flag() if "required" in entry else True
    remote = Remote.read(entry["measure"]) if "measure" in entry else None
    nodes = _nodes(entry["nodes"]) if "nodes" in entry else {}
    if nodes and remote is not None:
        raise entry["nodes"].error("cannot be combined with `measure`; remove one of them")
    return TargetSpec(name, kind_name, kind.read(node, remote), node.file, required, remote, nodes)


def _nodes(node: Node) -> dict[str, str | int]:
    """Return the resources by which a cluster's scheduler chooses a node."""
    entry = node.mapping()
    if not entry:
        raise node.error("is empty; give the resources that choose a node, such as `nodes: {partition: amd}`")
    for name, item in entry.items():
        if not name.isidentifier() or name in OWN_RESOURCES:
            raise item.error("is not a resource that chooses a node; use for example `partition` or `node_selector`")
    return {name: item.text() if isinstance(item.value, str) else item.whole(least=0) for name, item in entry.items()}


def _build(
    node: Node, defaults: Mapping[str, Any], models: Mapping[str, ModelSpec], targets: Mapping[str, TargetSpec]
) -> BuildSpec:
    entry = node.mapping(required=("model", "target"))
    model = entry["model"].choice(models, "one of the models")
    target = entry["target"].choice(targets, "one of the targets")
    if models[model].ranges and not get_kind(targets[target].kind).serves_ranges:
        ranges = ", ".join(f"{symbol}: {size_range}" for symbol, size_range in models[model].ranges.items())
        raise entry["model"].error(
            f"found {model} with the range {ranges}; only targets of kind cpu serve ranges; give one model for "
            "each fixed size instead"
        )
    overrides = {key: setting for key, setting in entry.items() if key not in ("model", "target", "name")}
    tuning = {**defaults, **_tuning(overrides)}
    name = _name(entry["name"], _MAX_BUILD_NAME_LENGTH) if "name" in entry else f"{model}-{target}-{tuning['preset']}"
    budget_kind = next(budget for settings in (overrides, defaults) for budget in _BUDGETS if budget in settings)
    seconds = tuning[budget_kind] if budget_kind == "total_seconds" else None
    budget = Budget(None if seconds else tuning[budget_kind], budget_kind != "trials", seconds)
    refine = _check_refine(node, tuning["refine"], targets[target])
    return BuildSpec(name, model, target, _tuner_settings(tuning), budget, tuning["seed"], node.path, refine)


def _check_refine(node: Node, refine: int, target: TargetSpec) -> int:
    """Check that kernels can be timed on the target if the build is refined."""
    if refine and (target.remote is not None or not get_kind(target.kind).profilable):
        location = "remote" if target.remote is not None else f"of kind {target.kind}"
        raise node.error(
            f"found refine: {refine}, which requires this machine's CPU; target {target.name} is {location}; "
            "set `refine: 0` for the build"
        )
    return refine


def _tuning(settings: Mapping[str, Node]) -> dict[str, Any]:
    """Check the settings that all tuners share; `anole.search.presets` checks the rest."""
    for name in _NON_TUNER_SETTINGS:
        if name in settings:
            settings[name].whole(least=0)
    budget, *other_budgets = [name for name in _BUDGETS if name in settings] or [""]
    if other_budgets:
        one_of = "`trials` for each task, or `total_trials` or `total_seconds` for all tasks"
        raise settings[budget].error(f"found together with {other_budgets[0]}; a budget is {one_of}")
    if "preset" in settings:
        settings["preset"].text()
    return {name: setting.value for name, setting in settings.items()}


def _tuner_settings(tuning: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in tuning.items() if name not in _NON_TUNER_SETTINGS}


def _named_entries(node: Node) -> list[tuple[str, Node]]:
    entries = node.mapping()
    if not entries:
        raise node.error("is empty")
    for name in entries:
        _name(Node(name, node.path, node.file), _MAX_NAME_LENGTH)
    return list(entries.items())


def _name(node: Node, max_length: int) -> str:
    name = node.text()
    if len(name) > max_length:
        raise node.error(f"found a name of {len(name)} characters; at most {max_length} are allowed")
    if not _NAME.fullmatch(name):
        raise node.error(f"found {name!r}; a name consists of letters, digits and _ . + -, the first not . + -")
    return name


def _merge(base: object, override: object) -> object:
    if isinstance(override, Mapping):
        base_mapping = base if isinstance(base, Mapping) else {}
        return {**base_mapping, **{key: _merge(base_mapping.get(key), value) for key, value in override.items()}}
    return _parse_number(override) if isinstance(override, str) else override


def _parse_number(text: str) -> object:
    """Convert text to the number it represents: Snakemake passes values inside a mapping as text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if type(value) in (int, float) else text

"""Parse the section `accelerators` of models.yaml: searches for hardware that runs several networks."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from anole.config.entries import AcceleratorSpec, TargetSpec
from anole.errors import TargetError
from anole.node import Node
from anole.targets import get_kind
from anole.targets.kind import Exploration

_MIN_WEIGHT, _MAX_WEIGHT = 1e-9, 1e9


def read_accelerator(
    name: str, node: Node, models: Collection[str], targets: Mapping[str, TargetSpec]
) -> AcceleratorSpec:
    """Check an entry, which names models and targets; raise SpecError for the first mistake."""
    required = ("models", "targets")
    entry = node.mapping(required=required)
    target_names = _names(entry["targets"], targets, "one of the targets")
    exploration = _exploration(entry["targets"], [targets[target] for target in target_names])
    node.mapping(allowed=(*required, *exploration.setting_names))
    other_settings = {key: setting for key, setting in entry.items() if key not in required}
    try:
        settings = exploration.read(other_settings, {target: targets[target].settings for target in target_names})
    except TargetError as error:
        raise entry["targets"].error(str(error)) from error
    return AcceleratorSpec(name, _weights(entry["models"], models), tuple(target_names), settings, node.path)


def _weights(node: Node, models: Collection[str]) -> dict[str, float]:
    """Return the weight of each model; all are 1 if the entry is a list."""
    if not isinstance(node.value, dict):
        return dict.fromkeys(_names(node, models, "one of the models"), 1.0)
    weights = node.mapping()
    if not weights:
        raise node.error("is empty; name the networks that the accelerator is for")
    for name in weights:
        Node(name, node.path, node.file).choice(models, "one of the models")
    return {name: weight.number(_MIN_WEIGHT, _MAX_WEIGHT) for name, weight in weights.items()}


def _names(node: Node, allowed: Collection[str], what: str) -> list[str]:
    names: list[str] = []
    for item in node.items():
        if item.choice(allowed, what) in names:
            raise item.error(f"found {item.value!r} twice")
        names.append(item.value)
    return names


def _exploration(node: Node, targets: Collection[TargetSpec]) -> Exploration:
    """Return the exploration of the targets' kind, which must be the same for all."""
    kind, *other_kinds = {target.kind for target in targets}
    exploration = get_kind(kind).exploration
    if other_kinds or exploration is None:
        raise node.error(
            f"found targets of kind {', '.join(sorted((kind, *other_kinds)))}; all must be of one kind with searchable "
            "hardware, such as vta"
        )
    return exploration

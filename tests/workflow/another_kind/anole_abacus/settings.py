"""The settings of an abacus in models.yaml, and its description."""

from __future__ import annotations

from typing import Any

from anole.node import Node
from anole.targets.cpu.settings import describe_cpu
from anole.targets.kind import Kind
from anole.targets.rpc.address import Remote
from anole_abacus.target import AbacusTarget


def read_settings(node: Node, remote: Remote | None) -> dict[str, Any]:
    """Return the settings of an entry of ``targets``."""
    entry = node.mapping(required=("rods",))
    return {"rods": entry["rods"].whole(least=1)}


def describe_abacus(rods: int) -> dict[str, Any]:
    """Return the complete description of an abacus, which is part of the keys of tasks."""
    return {**describe_cpu(threads=rods), "kind": "abacus", "rods": rods}


KIND = Kind(("rods",), read_settings, describe_abacus, AbacusTarget, exporter="anole.export.stage:export_build")

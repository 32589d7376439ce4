"""Values that depend on no input are evaluated by torch, unless they are random or too large."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from anole.extract import fold_program as module
from anole.extract.decompositions import decompose
from anole.extract.fold_program import fold_program


class Net(torch.nn.Module):
    def __init__(self, compute: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(1.0, 5.0))
        self.register_buffer("scale", torch.tensor(2.0), persistent=False)
        self.compute = compute

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.compute(self, x)


def fold_and_check(net: Net) -> list[str]:
    """Return the remaining operators of a decomposed network on four numbers; check that its result is the same."""
    x = torch.randn(4)
    program = decompose(torch.export.export(net.eval(), (x,)))
    torch.manual_seed(0)
    expected = net(x)
    torch.manual_seed(0)
    values = {**dict(program.named_parameters()), **dict(program.named_buffers()), **program.constants}
    specs = program.graph_signature.input_specs
    by_name = {spec.arg.name: x if spec.target is None else values[spec.target] for spec in specs}
    nodes = program.graph.find_nodes(op="placeholder")
    (found,) = torch.fx.Interpreter(program.graph_module).run(*(by_name[node.name] for node in nodes))
    torch.testing.assert_close(found, expected)
    return [node.target.__name__ for node in program.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize(
    ("compute", "remaining"),
    [
        (lambda net, x: x + net.weight.exp() * net.scale, ["add.Tensor"]),
        (lambda net, x: x * torch.arange(4).flip(0).sort()[0], ["mul.Tensor"]),
        (lambda net, x: torch.where(torch.ones(4, 4).tril().bool(), x, -torch.inf), ["where.self"]),
        (lambda net, x: x + torch.rand(4).mul(0), ["rand.default", "mul.Tensor", "add.Tensor"]),
    ],
)
def test_only_operators_that_depend_on_inputs_remain(
    compute: Callable[[torch.nn.Module, torch.Tensor], torch.Tensor], remaining: list[str]
) -> None:
    assert fold_and_check(Net(compute)) == remaining


def test_large_results_are_not_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_ELEMENTS", 4)
    remaining = fold_and_check(Net(lambda net, x: x + net.weight.exp().repeat(2)[:4]))
    assert remaining == ["repeat.default", "slice.Tensor", "add.Tensor"]


def test_folding_twice_changes_nothing() -> None:
    program = decompose(torch.export.export(Net(lambda net, x: x + net.weight.exp()).eval(), (torch.randn(4),)))
    before = str(program.graph)
    fold_program(program)
    assert str(program.graph) == before

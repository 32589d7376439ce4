"""The backend of torch.compile computes what eager mode computes, which also runs what cannot be compiled."""

import warnings
from copy import deepcopy

import pytest
import torch


class Broken(torch.nn.Module):
    """A network with two graphs."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.Linear(16, 8)

    def forward(self, x):
        y = torch.relu(self.norm(self.conv(x))).mean((2, 3))
        torch._dynamo.graph_break()
        return {"scores": self.head(y), "features": [y]}


def compare(network, compiled, x):
    """Assert that a compiled network computes what the network computes; return the warnings of the compiled one."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = compiled(x)
    torch.testing.assert_close(found, network(x), rtol=1e-4, atol=1e-5)
    return [str(warning.message) for warning in caught if "anole" in str(warning.message)]


@pytest.mark.guard
def test_graphs_are_compiled_and_changed_parameters_run_in_eager_mode(tmp_path):
    network = Broken().eval()
    compiled = torch.compile(network, backend="anole", options={"project": tmp_path})
    with torch.no_grad():
        for _ in range(2):
            assert compare(network, compiled, torch.randn(2, 3, 8, 8)) == []
        assert len(list((tmp_path / "builds").iterdir())) == 2
        network.head.weight.mul_(2.0)
        (warning,) = compare(network, compiled, torch.randn(2, 3, 8, 8))
        assert warning.endswith("its parameters have changed")
        assert compare(network, compiled, torch.randn(2, 3, 8, 8)) == []  # warned once


class Counter(torch.nn.Module):
    """A layer that adds the number of its calls."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        return x + self.calls


@pytest.mark.parametrize("reason", ["computes gradients", "training mode", "sizes vary", "writes to its buffers"])
def test_other_graphs_run_in_eager_mode_with_a_warning(reason, tmp_path):
    torch._dynamo.reset()
    last = Counter() if "buffers" in reason else torch.nn.Dropout(1.0)
    network = torch.nn.Sequential(torch.nn.Linear(8, 8), last).train("training" in reason)
    compiled = torch.compile(network, backend="anole", dynamic="sizes" in reason, options={"project": tmp_path})
    with torch.set_grad_enabled("gradients" in reason):
        (warning,) = compare(deepcopy(network), compiled, torch.randn(3, 8))
    assert reason in warning

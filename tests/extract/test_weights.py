"""Randomized weights make outputs depend on every layer and on the input, and are the same everywhere."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from anole.config.entries import ModelSpec
from anole.extract import weights
from anole.extract.torch import make_network
from anole.extract.weights import randomize_weights

from ..tiny_networks import Gated, Residual, Shy, norm_first


class Deep(nn.Sequential):
    """Many layers without shortcuts, with weights so small that nothing remains of the input."""

    def __init__(self) -> None:
        layers = [layer for _ in range(12) for layer in (nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())]
        super().__init__(nn.Conv2d(4, 8, 1), *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
        for weight in self.parameters():
            nn.init.normal_(weight, std=1e-2)


class Depthwise(nn.Sequential):
    """Depthwise layers of several kinds."""

    def __init__(self) -> None:
        super().__init__(
            nn.Conv2d(6, 6, 3, padding=1, groups=6),
            nn.ReLU(),
            nn.Conv2d(6, 6, (5, 3), stride=(2, 1), padding=(2, 0), dilation=(1, 2), groups=6, bias=False),
            nn.Conv2d(6, 6, 3, padding="same", groups=6),
        )


class Attention(nn.Module):
    """Attention whose scores are so large that each row selects one value."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (layer(nn.functional.layer_norm(x, x.shape[-1:])) for layer in self.layers)
        return x + (4 * query @ key.transpose(-1, -2)).softmax(-1) @ value


class OneRow(nn.Module):
    """A network that accepts only one row, and only single precision."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x.view(1, 4).float())


class SmallScales(nn.Sequential):
    """Batch-norms with small random scales, as some networks are initialized."""

    def __init__(self) -> None:
        layers = [layer for _ in range(4) for layer in (nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.SiLU())]
        super().__init__(nn.Conv2d(4, 8, 1), *layers)
        for layer in self:
            if isinstance(layer, nn.BatchNorm2d):
                nn.init.normal_(layer.weight, std=0.02)


class Caching(nn.Module):
    """A network that caches a table at its first run."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.table: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None:
            self.table = self.linear.weight.sum(1)
        return self.linear(x) + self.table


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "residual": (Residual, (1, 3, 16, 16)),
    "shy": (Shy, (1, 3, 16, 16)),
    "deep": (Deep, (1, 4, 12, 12)),
    "depthwise": (Depthwise, (1, 6, 13, 12)),
    "gated": (Gated, (2, 4, 12, 12)),
    "small_scales": (SmallScales, (1, 4, 12, 12)),
    "caching": (Caching, (1, 4)),
    "transformer": (norm_first, (1, 6, 32)),
}


def randomize(name: str) -> tuple[nn.Module, torch.Tensor]:
    """Return a network with randomized weights, and three inputs."""
    make, shape = NETWORKS[name]
    torch.manual_seed(0)
    network, inputs = make().eval(), torch.randn(3, *shape)
    randomize_weights(network, (inputs[0],))
    return network, inputs


def outputs(network: nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return torch.stack([network(each) for each in inputs])


@pytest.mark.parametrize("name", NETWORKS)
def test_outputs_depend_on_the_input(name: str) -> None:
    found = outputs(*randomize(name))
    variation = (found - found.mean(0)).norm() / found.norm()
    assert found.isfinite().all() and 0.02 < variation < 1


@pytest.mark.parametrize("name", NETWORKS)
def test_noise_of_one_percent_in_any_layer_is_detected(name: str) -> None:
    network, inputs = randomize(name)
    before = outputs(network, inputs)
    for layer in network.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            kept = layer.weight.data.clone()
            layer.weight.data *= 1 + 0.01 * torch.randn(kept.shape)
            assert (outputs(network, inputs) - before).norm() > 3e-4 * (before - before.mean(0)).norm()
            layer.weight.data = kept


def test_rounding_errors_are_not_amplified() -> None:
    torch.manual_seed(0)
    network, inputs = nn.Sequential(*(Attention(24) for _ in range(16))).eval(), torch.randn(3, 1, 16, 24)
    randomize_weights(network, (inputs[0],))
    single = outputs(network, inputs)
    double = outputs(network.double(), inputs.double())
    assert (single - double).norm() < 2e-5 * double.norm()


def test_without_randomization_outputs_hardly_depend_on_the_input() -> None:
    torch.manual_seed(0)
    network, inputs = Deep().eval(), torch.randn(3, 1, 4, 12, 12)
    found = outputs(network, inputs)
    assert (found - found.mean(0)).norm() < 1e-6 * found.norm()


@pytest.mark.parametrize("name", NETWORKS)
def test_another_order_of_sums_gives_the_same_weights(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = dict(randomize(name)[0].state_dict())
    for kind in (nn.Conv2d, nn.Linear):
        forward = kind.forward
        monkeypatch.setattr(kind, "forward", lambda self, x, forward=forward: forward(self, x) * (1 + 1e-13))
    second = randomize(name)[0].state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert all(value.dtype == torch.float32 for value in first.values() if value.is_floating_point())


def test_every_layer_computes_values_of_the_same_magnitude() -> None:
    network, inputs = randomize("depthwise")
    found = outputs(network, inputs) - network[-1].bias.reshape(-1, 1, 1)
    assert 0.3 < 4 * found.square().mean() < 3


@pytest.mark.parametrize("n_values", [1, 2**16], ids=["a row", "all rows"])
def test_depthwise_layers_compute_the_same_by_taps(n_values: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_MAX_CACHED_VALUES", n_values)
    data = torch.randn(2, 6, 13, 12, dtype=torch.float64)
    layers = [
        nn.Conv2d(6, 6, (5, 3), stride=(2, 1), padding=(2, 0), dilation=(1, 2), groups=6, bias=False),
        nn.Conv2d(6, 6, 4, stride=(1, 3), padding=1, groups=6),
    ]
    for layer in map(nn.Module.double, layers):
        found = weights._sum_taps(data, layer.weight, layer.bias, layer.stride, layer.padding, layer.dilation)
        with weights._DepthwiseByTaps():
            assert torch.equal(layer(data), found)
        torch.testing.assert_close(found, layer(data))


def test_the_memory_of_the_copy_is_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[torch.Tensor] = []
    widened = weights._widen
    monkeypatch.setattr(weights, "_widen", lambda value: copies.append(widened(value)) or copies[-1])
    network, _ = randomize("residual")
    assert len(copies) == len([*network.parameters(), *network.buffers()])
    assert not any(copied.untyped_storage().nbytes() for copied in copies)
    assert all(value.untyped_storage().nbytes() for value in network.state_dict().values())


def test_a_network_that_cannot_be_copied_is_randomized_itself() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)).eval()
    network.generator = (number for number in range(3))
    before = network[0].weight.clone()
    randomize_weights(network, (torch.randn(1, 4),))
    assert network[0].weight.dtype == torch.float32 and not torch.equal(network[0].weight, before)


def test_a_network_that_accepts_only_one_row_is_run_with_one() -> None:
    network = OneRow().eval()
    before = network.linear.weight.clone()
    randomize_weights(network, (torch.randn(1, 4),))
    # Its layer does not accept double precision, so only constant weights became random.
    assert torch.equal(network.linear.weight, before)
    assert network(torch.randn(1, 4)).dtype == torch.float32


def test_a_network_in_half_precision_is_not_calibrated() -> None:
    network = nn.Linear(4, 3).half().eval()
    before = network.weight.clone()
    randomize_weights(network, (torch.randn(1, 4).half(),))
    assert network.weight.dtype == torch.float16 and torch.equal(network.weight, before)


def test_networks_from_torchvision_have_randomized_weights() -> None:
    model = ModelSpec("net", "torchvision:squeezenet1_1", {"x": (1, 3, 64, 64)})
    network = make_network(model)
    found = outputs(network, torch.randn(3, 1, 3, 64, 64))
    assert (found - found.mean(0)).norm() > 0.02 * found.norm()
    assert all(
        torch.equal(mine, again)
        for mine, again in zip(network.parameters(), make_network(model).parameters(), strict=True)
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_the_number_of_threads_does_not_matter(name: str) -> None:
    n_threads, found = torch.get_num_threads(), []
    for each in (1, 2):
        torch.set_num_threads(each)
        found.append(randomize(name)[0].state_dict())
        assert torch.get_num_threads() == each
    torch.set_num_threads(n_threads)
    assert all(torch.equal(value, found[1][key]) for key, value in found[0].items())

"""Decompositions of operators that TVM's importer does not support or gets wrong match torch."""

from __future__ import annotations

from typing import Any

import pytest

from anole.errors import ExtractError
from anole.extract.load import load_model

from .conftest import Write
from .passes.building import assert_same_as_torch

SOURCE = """
def written(x, indices, values):
    x = x.clone()
    x[indices] = values
    return x

def volume(x):
    return x.unsqueeze(2) * torch.arange(3.0).view(3, 1, 1)

def grid(x):
    return x[:, :3].permute(0, 2, 3, 1).unsqueeze(1)

def rows(x):
    return (3 * x[0, 0]).long().abs().clamp(max=7)

class Net(nn.Module):
    def forward(self, x):
        return {expression}
"""


def variant(expression: str) -> Any:
    """Mark a variant that `make test` skips."""
    return pytest.param(expression, marks=pytest.mark.guard)


@pytest.mark.parametrize(
    "expression",
    [
        "F.selu(x)",
        "F.elu(x, 0.3)",
        variant("F.celu(x, 0.3)"),
        "torch.add(x, x.flip(0), alpha=0.5)",
        "torch.sub(x, x.flip(0), alpha=2)",
        "torch.rsub(x, 2.0, alpha=3)",
        "1 - x",
        variant("F.group_norm(x, 3)"),
        "F.group_norm(x, 3, torch.arange(6.0))",
        variant("F.adaptive_max_pool2d(x, 1)"),
        "F.adaptive_max_pool2d(x, (4, 2))",
        "x.amax((2, -1))",
        "x.amin(1, keepdim=True)",
        "x + x.amax()",
        "torch.logsumexp(x, 1)",
        "F.interpolate(x, size=(13, 25))",
        variant("F.interpolate(x, size=(5, 3))"),
        variant("F.interpolate(x, scale_factor=(2, 3))"),
        "F.interpolate(x, scale_factor=1.7)",
        "F.interpolate(x, scale_factor=2, mode='bicubic')",
        "x // 2 + torch.floor_divide(x, torch.arange(1, 11))",
        "(9 * x).long() // 2 + torch.div((9 * x).long(), 4, rounding_mode='trunc') + x",
        variant("(9 * x).long() / 3 + (9 * x).long() / torch.arange(1, 11)"),
        "((x > 0) + (x > 1)) * x",
        "x[:, :, torch.tensor([[0], [3]]), torch.tensor([1, -2, 3])]",
        variant("x[torch.tensor([0, 1]), :, torch.tensor([5, -1])]"),
        variant("x[:, torch.tensor([[[[0]], [[1]]]]), torch.tensor([[1, 2], [-3, 4], [5, 6]])]"),
        "x[:, (x[0, :, 0, 0] > 0).long(), (x[0, :, 0, 1] > 0).long()]",
        "written(x, (slice(None), torch.tensor([1, -1])), x[:, :2] + 1)",
        variant("written(x, (slice(None), torch.tensor([1, 4]), slice(None), torch.tensor([[2], [-3]])), 5.0)"),
        variant("written(x, (torch.tensor([1]), slice(None), torch.tensor([[2], [5]])), x[:1, :, 0])"),
        "written(x, (slice(None), (x[0, :1, 0, 0] > 0).long()), x[0, 0])",
        "written(x, x > 0, 2.0) + written(x, (slice(None), x[0, :, :, 0] > 0), torch.arange(10.0))",
        "x.index_put((x > 0,), torch.tensor(2.0), accumulate=True)",
        "x.index_copy(2, torch.tensor([3, 1]), x[:, :, :2]) + x.index_fill(1, torch.tensor([0, 4]), 3.0)",
        "x.index_add(3, torch.tensor([3, 3, 0]), x[..., :3], alpha=2)",
        "x.scatter_add(1, (x > 0).long(), x.flip(0))",
        variant("F.fold(F.unfold(x, 3, padding=1, stride=2), (8, 10), 3, padding=1, stride=2)"),
        "F.fold(F.unfold(x, (2, 3), dilation=2, stride=(3, 2)), (8, 10), (2, 3), dilation=2, stride=(3, 2))",
        "x.unfold(2, 3, 2) + x[0, 0, 0, 0].unfold(0, 1, 1)",
        "x.as_strided((3, 4), (2, 5), 1), x[1].as_strided((3, 4), (2, 5), 490)",
        "F.max_pool2d(x, 3, 2, 1, return_indices=True)",
        "F.max_pool2d(x, (2, 3), dilation=2, padding=1, ceil_mode=True, return_indices=True)",
        "F.adaptive_max_pool2d(x, (3, 4), return_indices=True)",
        "F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=2)",
        "F.avg_pool2d((9 * x).long(), 3, 2, 1)",
        "torch.var_mean(x, (0, 3)) + torch.var_mean(x)",
        "(*x.min(1), *x.max(-1, keepdim=True), *x[0, 0, 0, 0].max(0), x[0, 0, 0, 0].argmax())",
        "(x.prod(2), (x > 0).prod(), (x > 0).any(), (x > 0).amax(1), (x > 0).amin((2, 3)))",
        "torch.cdist(x[0], x[1]), F.pdist(x[0, 0])",
        "torch.native_layer_norm(x, (10,), None, None, 1e-5)",
        "torch.native_group_norm(x, None, None, 2, 6, 80, 3, 1e-5)",
        "torch.sinh(x) + torch.cosh(x) + torch.exp2(x) + torch.exp2((9 * x).long())",
        "torch.fmax(torch.where(x > 0, torch.nan, x), x.flip(0)), torch.fmin(x, x.flip(0)), torch.hypot(x, x.flip(0))",
        "torch.logaddexp(x, x.flip(0)), torch.logaddexp(x[0, 0, 0, 0], x[0, 0, 0, 1])",
        "torch.maximum(x > 0, x > 1), torch.minimum(x > 0, x > 1)",
        "(9 * x).long().clamp(min=2), (9 * x).long().clamp(max=2), x.clamp(torch.zeros(10), x.flip(0).exp())",
        "x.scatter_reduce(1, (x > 0).long(), x.exp(), 'mean', include_self=False)",
        "x.scatter_reduce(1, (x > 0).long(), x.exp(), 'prod')",
        "(x > 0).scatter_reduce(1, (x > 0).long(), x > 1, 'amax', include_self=False)",
        "x.masked_scatter(x > 0, torch.arange(960.0).view(2, 6, 8, 10))",
        "(x > 0).index_put((torch.tensor([0]),), x[1] > 0, accumulate=True)",
        "x[:, torch.tensor([-2])]",
        "F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1), padding_mode='border', align_corners=False)",
        variant("F.grid_sample(volume(x), 3 * grid(x), align_corners=False)"),
        variant("F.grid_sample(volume(x), 3 * grid(x), padding_mode='border', align_corners=True)"),
        "F.grid_sample(volume(x), 3 * grid(x), 'nearest', 'reflection', align_corners=False)",
        variant("F.grid_sample(volume(x), 3 * grid(x), padding_mode='reflection', align_corners=True)"),
        "x[0, 0, 0, 0].sum(0), x[0, 0, 0, 0].amax(-1), x[0, 0, 0, 0].topk(1), x[0, 0, 0, 0].cumsum(0)",
        "x[0, 0, 0].gather(0, torch.tensor(2)), x[0, 0, 0].scatter(0, torch.tensor(2), x[0, 0, 0, 0])",
        "x.index_select(1, torch.tensor(2)), x[0, 0, 0, 0].index_select(0, torch.tensor([0]))",
        "F.normalize(x[0, 0, 0, 0], dim=0), torch.linalg.vector_norm(x[0, 0, 0, 0], 0)",
        "(9 * x).long().sin(), (x > 0).exp(), 1 / (9 * x).long(), torch.atan2(x > 0, (9 * x).long())",
        "(x > 0) == (x > 1), (x > 0) > 0.5, (x > 0) * (x > 1), (9 * x).long() * 2.5, (9 * x).long() ** 2.5",
        "torch.where(x > 0, (9 * x).long(), x), (9 * x).long().isnan(), (x > 0).isinf(), (x > 0).sign()",
        "(9 * x).long() ** (2 * x).long(), 2 ** (x > 0).long(), (9 * x).long() << 2, (9 * x).long() >> x.long().abs()",
        "(*(x > 0).sort(dim=1, stable=True), x.any(2), F.pad(x > 0, (1, 2), value=2), torch.trapz(x.long(), dim=1))",
        "(x > 0).scatter_add(1, (x > 0).long(), x > 1), x.put(torch.tensor([3, -1]), x[0, 0, 0, :2])",
        "x.signbit(), torch.copysign(x, x.flip(0)), torch.copysign((9 * x).long(), -1.0), x.angle()",
        "(9 * x).long() @ (4 * x).long().transpose(2, 3), F.linear((9 * x).long(), torch.arange(20).view(2, 10))",
        "torch.addmm(torch.arange(8), (9 * x[0, 0]).long(), (9 * x[1, 0]).long().T, alpha=2)",
        "torch.addbmm(x[0, 0, :, :8], x[0], x[1].transpose(1, 2), beta=0.5)",
        "F.bilinear(x, x.flip(0), torch.arange(400.0).view(4, 10, 10).sin(), torch.arange(4.0))",
        variant("F.conv2d((9 * x).long(), torch.arange(108).view(4, 3, 3, 3), None, (1, 2), 1, (2, 1), 2)"),
        "F.conv_transpose2d((9 * x).long(), torch.arange(72).view(6, 3, 2, 2), None, (1, 2), 1, (0, 1), 2, (2, 1))",
        "F.conv_transpose2d(x, torch.arange(72.0).view(6, 3, 2, 2).sin(), None, (1, 2), 1, (1, 1), 2, (2, 1))",
        "F.conv_transpose2d(x, x[:, :, :3, :3].reshape(6, 2, 3, 3), stride=2, padding=1, output_padding=1)",
        "F.conv_transpose3d(volume(x), torch.arange(432.0).view(6, 4, 2, 3, 3).cos(), None, 2, 1, (1, 0, 1), 2, 2)",
        "torch.block_diag(x[0, 0], x[0, 1]), x.diagonal_scatter(x[:, :, 0].transpose(1, 2), 1, 1, 2)",
        "x.index_reduce(1, torch.tensor([0, 0, 3]), x[:, :3], 'amax')",
        "x.as_strided_scatter(x[0, 0, :2, :2], (2, 2), (7, 1), 3)",
        "(*x.cummax(1), *x[0, 0, 0, 0].cummax(0))",
        variant("(9 * x).long().cummin(2)"),
        "(*x.kthvalue(3, 1), *x[0].mode(0), (9 * x).long().mode(2)[0])",
        "torch.where(x > 0, torch.nan, x).nanmedian(1)[0], x.nanmedian(), (9 * x).long().nanmedian(2)[0]",
        "torch.searchsorted(torch.arange(10.0), x), torch.searchsorted(x.sort(-1)[0], x.flip(0), right=True)",
        "torch.bucketize(x, torch.arange(-1.0, 1.0, 0.2), right=True), torch.bucketize(x.long(), torch.tensor([0.5]))",
        "F.embedding_bag(rows(x), x[0, 0])",
        variant("F.embedding_bag(rows(x), x[0, 0], mode='max', padding_idx=3)"),
        "F.embedding_bag(rows(x)[0], x[0, 0], torch.tensor([0, 3, 3, 7]), mode='sum', per_sample_weights=x[0, 0, 1])",
        "F.interpolate(x, (5, 17), mode='bilinear', antialias=True)",
        variant("F.interpolate(x, (15, 7), mode='bicubic', antialias=True)"),
        variant("torch._scaled_dot_product_flash_attention_for_cpu(x, x, x, is_causal=True)"),
        "torch.fft.irfft((9 * x).long())",
        "(1e20 * x).remainder(3.0), (x - 2).remainder(float('inf')), torch.remainder(5, x)",
        variant("(9 * x).long().remainder(-2.5), (9 * x).long().remainder(-4)"),
        "F.layer_norm(F.conv2d(x, x[:, :, :1, :1]), (2, 8, 10), torch.arange(160.0).view(2, 8, 10).sin())",
    ],
)
@pytest.mark.examples(4)
def test_results_match_torch(write: Write, expression: str) -> None:
    assert_same_as_torch(write(SOURCE.format(expression=expression), 2, 6, 8, 10))


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("written(x, x > -100, torch.arange(960.0))", r"index_put writes a list .* torch\.where"),
        ("x[x > 0]", r"index selects the elements .* torch\.where"),
    ],
)
def test_indexing_by_unknown_masks_is_rejected(write: Write, expression: str, message: str) -> None:
    with pytest.raises(ExtractError, match=message):
        load_model(write(SOURCE.format(expression=expression), 2, 6, 8, 10))

"""Complex numbers and Fourier transforms, computed with real numbers, match torch."""

from __future__ import annotations

import pytest

from anole.errors import ExtractError
from anole.extract.load import load_model

from .conftest import Write
from .passes.building import assert_same_as_torch

SOURCE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        angles = torch.arange(40.0).reshape(8, 5)
        self.register_buffer("turns", torch.polar(torch.ones(8, 5), angles), persistent=False)
        self.gains = torch.nn.Parameter(torch.sin(torch.arange(96.0)).reshape(8, 6, 2))

    def forward(self, x):
        return {expression}
"""


@pytest.mark.parametrize(
    "expression",
    [
        "fft.irfft2(fft.rfft2(x, norm='ortho') * torch.view_as_complex(self.gains), s=(8, 10), norm='ortho')",
        "fft.irfft(fft.rfft(x, n=7), n=7) + fft.rfft(x, n=13).abs()",
        pytest.param("fft.fft2(fft.fft(x, dim=1).imag).real - fft.ifft(x, dim=0).imag", marks=pytest.mark.guard),
        "torch.view_as_real((torch.view_as_complex(x.view(2, 6, 8, 5, 2)) * self.turns).conj() - 2).flatten(3)",
        "(fft.fft(x, dim=1) @ fft.ifft(x, dim=0).transpose(-1, -2) / 3 + 1j * x[..., :8]).imag",
        "(torch.cat([fft.fft(x), 2j * fft.fft(x).roll(1, 2)], 1).mean((2, 3)) - x[:, :1, 0, 0]).abs()",
    ],
)
@pytest.mark.examples(1)
def test_results_match_torch(write: Write, expression: str) -> None:
    assert_same_as_torch(write(SOURCE.format(expression=expression), 2, 6, 8, 10))


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("fft.rfft(x)", "found a complex output; .*view_as_real"),
        ("fft.rfft(F.pad(x, (0, 3000))).abs()", "no converter for _fft_r2c"),
        ("torch.complex(x, x).log().real", "no converter for complex.default, view_as_real.default"),
    ],
)
def test_unsupported_complex_operators_are_rejected(write: Write, expression: str, message: str) -> None:
    with pytest.raises(ExtractError, match=message):
        load_model(write(SOURCE.format(expression=expression), 2, 6, 8, 10))

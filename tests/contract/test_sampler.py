from __future__ import annotations

import pytest

from anole.search.sample import SAMPLERS
from anole.testing.sampler_contract import SamplerContract


class TestSamplers(SamplerContract):
    @pytest.fixture(params=SAMPLERS)
    def sampler(self, request):
        return SAMPLERS[request.param]()

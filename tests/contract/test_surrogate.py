from __future__ import annotations

import pytest

from anole.search.surrogate import SURROGATES
from anole.testing.surrogate_contract import SurrogateContract


class TestSurrogates(SurrogateContract):
    @pytest.fixture(params=SURROGATES)
    def surrogate(self, request):
        return SURROGATES[request.param]()

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Limit torch to one thread, as the explorer does: with small networks, synchronization would dominate."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)

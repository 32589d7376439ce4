"""Convert exceptions from a model's code, or from a library that loads it, to `ExtractError`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anole.errors import ExtractError, cause


@contextmanager
def convert_to_extract_error(
    what: str, *failures: type[BaseException], line: int = -1, more: Callable[[BaseException], str] = lambda error: ""
) -> Iterator[None]:
    """Raise ExtractError for an exception, with its cause; an ExtractError passes through unchanged.

    Args:
        what: the message's beginning: the model, and what failed.
        failures: the exceptions to convert; by default every `Exception`.
        line: the index of the message's most informative line: the last one for TVM, the first one for torch.
        more: returns text to append to the message.
    """
    caught = failures or (Exception,)
    try:
        yield
    except ExtractError:
        raise
    except caught as error:
        raise ExtractError(f"{what}: {cause(error, line)}{more(error)}") from error

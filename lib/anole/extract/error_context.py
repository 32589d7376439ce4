"""Turns whatever fails within a model, or in a library that loads it, into one message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from anole.errors import ExtractError, cause


@contextmanager
def errors_as_extract_error(
    what: str, *failures: type[BaseException], line: int = -1, more: Callable[[BaseException], str] = lambda error: ""
) -> Iterator[None]:
    """Raise ExtractError of what failed, with its cause; errors that say so already stay as they are.

    Args:
        what: the model, and what cannot be done with it.
        failures: what may be raised; any `Exception` if none is named.
        line: which line of the failure's message says most: the last one of TVM's, and the first one of torch's.
        more: returns the end of the message.
    """
    caught = failures or (Exception,)
    try:
        yield
    except ExtractError:
        raise
    except caught as error:
        raise ExtractError(f"{what}: {cause(error, line)}{more(error)}") from error

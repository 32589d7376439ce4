"""Coverage-guided fuzzing of one reader: ``python -m tests.fuzz READER --seconds 60``.

It requires atheris (the dependency group ``fuzz``). Inputs that reach new code are kept in ``.fuzz/READER`` as seeds of
the next run. The run fails at the first input that raises anything but `AnoleError`, takes longer than 10 seconds or
uses more than 2 GB; that input is saved in ``.fuzz``, and ``python -m tests.fuzz READER --input FILE`` reproduces it.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["anole", "yaml.composer", "yaml.constructor", "yaml.resolver"]):
    from anole.errors import AnoleError

    from .mutation import changed
    from .readers import Reader, Readers, folder_in_memory, without_sync

TIMEOUT_S = 10
"""Inputs that take longer count as hangs."""

MAX_MEMORY_MB = 2048
"""Inputs that use more memory fail."""

MAX_BYTES = {"database": 1 << 18, "spec": 1 << 11}
"""The maximum size of inputs by reader; 16 kB for all others."""


def main() -> None:
    """Fuzz the reader given on the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("reader", choices=("shard", "documents", "spec", "lockfile", "database", "onnx"))
    parser.add_argument("--seconds", type=int, default=60, help="duration of the run")
    parser.add_argument("--input", type=Path, help="read only this file, to reproduce an error")
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)
    without_sync()
    with folder_in_memory() as folder:
        readers = Readers(Path(folder))
        if given.input is not None:
            read_input(readers.by_name[given.reader], given.input.read_bytes())
            return
        child = os.fork()
        if child == 0:
            fuzz(readers, given.reader, given.seconds)
        _, status = os.waitpid(child, 0)
    sys.exit(os.waitstatus_to_exitcode(status))


def read_input(read: Reader, data: bytes) -> None:
    """Call a reader, and suppress `AnoleError`, which invalid inputs may raise."""
    with suppress(AnoleError):
        read(data)


def fuzz(readers: Readers, name: str, seconds: int) -> None:
    """Fuzz a reader, then exit the process."""
    corpus = Path(".fuzz", name)
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(readers.seeds(name)):
        (corpus / f"seed-{number}").write_bytes(data)
    options = {
        "max_total_time": seconds,
        "timeout": TIMEOUT_S,
        "rss_limit_mb": MAX_MEMORY_MB,
        "max_len": MAX_BYTES.get(name, 1 << 14),
        "artifact_prefix": f".fuzz/{name}-",
        "print_final_stats": 1,
    }
    flags = [f"-{option}={value}" for option, value in options.items()]

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        structured = changed(data, name, seed) if seed % 2 else None
        return structured[:max_size] if structured is not None else atheris.Mutate(data, max_size)

    read = partial(read_input, readers.by_name[name])
    atheris.Setup([sys.argv[0], *flags, str(corpus)], read, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

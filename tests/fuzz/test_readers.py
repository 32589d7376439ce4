"""What `make fuzz` begins with is accepted by every reader, so that changes of it reach all of the reader's code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anole.errors import AnoleError

from .readers import MENDED, Readers

NAMES = ("shard", "documents", "spec", "lockfile", "database", "onnx")


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Readers]:
    yield Readers(tmp_path_factory.mktemp("readers"))


@pytest.mark.parametrize("name", NAMES)
def test_every_seed_is_accepted(readers: Readers, name: str) -> None:
    seeds = readers.seeds(name)
    if name == "database":
        # The last ones are changes of values, which are refused.
        seeds = seeds[:2]
    if name == "spec":
        # The other one is the repository's own, whose files are not here.
        seeds = seeds[:1]
    assert seeds
    for seed in seeds:
        readers.by_name[name](seed)


def test_changed_values_reach_the_import(readers: Readers) -> None:
    """The tables that they are put into have no types, which would refuse them before."""
    read = readers.by_name["database"]
    with pytest.raises(AnoleError):
        read(MENDED + b'[["trial", 0, "number", "text"]]')


def test_a_change_behind_a_checksum_is_read(readers: Readers) -> None:
    (first, *_) = (seed for seed in readers.seeds("shard") if seed[:1] == MENDED)
    with pytest.raises(AnoleError, match="started_at"):
        readers.by_name["shard"](first.replace(b'"started_at":"2', b'"started_at":"x', 1))

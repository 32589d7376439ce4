"""The seed inputs of `make fuzz` are accepted by every reader, which lets mutations reach all of its code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anole.errors import AnoleError

from .readers import RESEALED, Readers

NAMES = ("shard", "documents", "spec", "lockfile", "database", "onnx")


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Readers]:
    yield Readers(tmp_path_factory.mktemp("readers"))


@pytest.mark.parametrize("name", NAMES)
def test_every_seed_is_accepted(readers: Readers, name: str) -> None:
    seeds = readers.seeds(name)
    if name == "database":
        # The others are changed values, which are rejected.
        seeds = seeds[:2]
    if name == "spec":
        # The other one is the repository's models.yaml, whose files are missing here.
        seeds = seeds[:1]
    assert seeds
    for seed in seeds:
        readers.by_name[name](seed)


def test_changed_values_reach_the_import(readers: Readers) -> None:
    """The tables have no column types, which would reject the values earlier."""
    read = readers.by_name["database"]
    with pytest.raises(AnoleError):
        read(RESEALED + b'[["trial", 0, "number", "text"]]')


def test_checksums_of_changed_lines_are_recomputed(readers: Readers) -> None:
    (first, *_) = (seed for seed in readers.seeds("shard") if seed[:1] == RESEALED)
    with pytest.raises(AnoleError, match="started_at"):
        readers.by_name["shard"](first.replace(b'"started_at":"2', b'"started_at":"x', 1))

"""A stored network equals the imported one, and damaged files are rejected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import tvm_ffi

from anole.errors import DocumentError
from anole.extract.imported import read_network, write_network
from anole.extract.load import load_model

from ..tiny_builds import RANGED


@pytest.mark.parametrize("name", ["masked", "listened"])
def test_a_network_is_the_same_after_writing_and_reading(name: str, project: Path) -> None:
    path, imported = Path("net.network"), load_model(RANGED[name])
    write_network(path, imported)
    read = read_network(path)
    assert tvm_ffi.structural_equal(imported.module, read.module)
    assert replace(read, module=imported.module) == imported
    complete = path.read_bytes()
    for content in (b"", complete[:100], complete[:-100], b"{}" + complete):
        path.write_bytes(content)
        with pytest.raises(DocumentError, match=r"^net.network: cannot be read: .*--forcerun extract"):
            read_network(path)

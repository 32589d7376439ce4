"""A stored network is the one that was imported, and a damaged file is refused."""

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
def test_what_is_read_is_what_was_imported(name: str, project: Path) -> None:
    path, imported = Path("net.network"), load_model(RANGED[name])
    write_network(path, imported)
    read = read_network(path)
    assert tvm_ffi.structural_equal(imported.module, read.module)
    assert replace(read, module=imported.module) == imported
    whole = path.read_bytes()
    for content in (b"", whole[:100], whole[:-100], b"{}" + whole):
        path.write_bytes(content)
        with pytest.raises(DocumentError, match=r"^net.network: cannot be read: .*--forcerun extract"):
            read_network(path)

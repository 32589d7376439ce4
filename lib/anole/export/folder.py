"""Writes what a user of the library reads: its header, an example, a CMake file and a wrapper for Python."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from string import Template

from anole.documents.build import TensorInfo
from anole.export.sequence import ITEM_BYTES
from anole.export.source import Network, size_bytes

PREFIX = "network"
"""What the names of a library's functions and files begin with, unless it has another prefix."""

WEIGHTS_ENDING = ".weights"

_TEMPLATES = files("anole.export").joinpath("c")
_NAMES = re.compile(r"\bnetwork(?=_\w|\.[a-z])|\blibnetwork\b|\bNETWORK(?=_[A-Z])|\b_NETWORK\b")


def public_name(text: str, prefix: str) -> str:
    """Returns C, CMake or Python with another prefix in all public names."""
    return _NAMES.sub(lambda found: found[0].replace("network", prefix).replace("NETWORK", prefix.upper()), text)


def user_files(network: Network, version: str) -> dict[str, str]:
    """Returns the text of each file for users of a library, by its name, all with the usual prefix."""
    values = _values(network, version)
    names = {
        "network.h.in": "network.h",
        "example.c.in": "example.c",
        "network.cmake.in": "network.cmake",
        "network.py.in": "network.py",
    }
    return {
        made: Template(_TEMPLATES.joinpath(template).read_text()).substitute(values) for template, made in names.items()
    }


def _values(network: Network, version: str) -> dict[str, object]:
    inside = network.weights_inside
    file = f'"network{WEIGHTS_ENDING}"'
    types = {name: number for number, name in enumerate(ITEM_BYTES)}
    return {
        "title": network.title,
        "version": version,
        "model": _quoted(network.model),
        "inputs": len(network.inputs),
        "outputs": len(network.outputs),
        "types": "\n".join(f"#define NETWORK_{name.upper()} {number}" for name, number in types.items()),
        "tensors": "\n".join([*_tensor_lines("INPUT", network.inputs), *_tensor_lines("OUTPUT", network.outputs)]),
        "arena_bytes": network.layout.size_bytes,
        "weights_bytes": len(network.weights.content),
        "where": "; they are in the library" if inside else f": a file that is mapped, {file}",
        "weights_note": "; unused, since they are in the library" if inside else "",
        "threads": network.threads,
        "levels": ", ".join(f'"{level.name}"' for level in network.levels),
        "example_settings": "0" if inside else f".weights = {file}",
        "example_weights": "NULL" if inside else "argc > 1 ? argv[1] : " + file,
        "buffers": "\n".join(_buffer_lines(network)),
        "input_list": ", ".join(f"{{input_{i}, sizeof input_{i}}}" for i in range(len(network.inputs))),
        "output_list": ", ".join(f"{{output_{i}, sizeof output_{i}}}" for i in range(len(network.outputs))),
        "python_inputs": _python_tensors(network.inputs),
        "python_outputs": _python_tensors(network.outputs),
        "python_weights": "None" if inside else f"FOLDER / {file}",
    }


def _tensor_lines(kind: str, infos: Sequence[TensorInfo]) -> Iterator[str]:
    for number, info in enumerate(infos):
        extents = " x ".join(map(str, info.shape)) or "a scalar"
        name = f"NETWORK_{kind}_{number}"
        yield f"/* {kind.capitalize()} {number}: {info.dtype}, {extents}. */"
        yield f"#define {name}_NAME {_quoted(info.name)}"
        yield f"#define {name}_TYPE NETWORK_{info.dtype.upper()}"
        yield f"#define {name}_RANK {len(info.shape)}"
        yield f"#define {name}_SHAPE {{{', '.join(map(str, info.shape)) or '0'}}}"
        yield f"#define {name}_ELEMENTS {size_bytes(info) // ITEM_BYTES[info.dtype]}"
        yield f"#define {name}_BYTES ((size_t){size_bytes(info)})"
        yield ""


def _buffer_lines(network: Network) -> Iterator[str]:
    for kind, infos in (("input", network.inputs), ("output", network.outputs)):
        for number in range(len(infos)):
            size = f"NETWORK_{kind.upper()}_{number}_BYTES"
            yield f"static _Alignas(64) unsigned char {kind}_{number}[{size}];"


def _python_tensors(infos: Sequence[TensorInfo]) -> str:
    rows = [f"    ({json.dumps(info.name)}, {info.shape!r}, {info.dtype!r}),\n" for info in infos]
    return "[\n" + "".join(rows) + "]"


def _quoted(text: str) -> str:
    """Returns a text as a string in C: JSON's escapes are C's, apart from those of other letters."""
    ascii_only = text.encode("ascii", "backslashreplace").decode() if not text.isascii() else text
    return json.dumps(ascii_only)

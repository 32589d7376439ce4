"""The user-facing files of an exported library: its header, an example, a CMake file and a Python wrapper."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from string import Template

from anole.documents.build import TensorInfo
from anole.errors import ExportError
from anole.export.sequence import ITEM_BYTES
from anole.export.source import Network, size_bytes

PREFIX = "network"
"""The default prefix of the names of a library's functions and files."""

WEIGHTS_ENDING = ".weights"

_RESIZE = """/* Sets the size of each range, in the order of their numbers, for all following runs. An instance starts
 * with the largest sizes.
 */
network_error network_resize(network_instance* instance, const int64_t sizes[NETWORK_RANGES]);

"""

_FILES = ("network.h", "network.cmake", "network.py", "example.c")

_TEMPLATES = files("anole.export").joinpath("c")
_NAMES = re.compile(r"\bnetwork(?=_\w|\.[a-z])|\blibnetwork\b|\bNETWORK(?=_[A-Z])|\b_NETWORK\b")


def public_name(text: str, prefix: str) -> str:
    """Replace the prefix of all public names in a text or file name."""
    return _NAMES.sub(lambda match: match[0].replace("network", prefix).replace("NETWORK", prefix.upper()), text)


def check_folder(folder: Path) -> None:
    """Check that a folder may be replaced: it is empty or contains only an exported library.

    Raises:
        ExportError: it contains other files, or is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise ExportError(f"{folder}: is a file; use a folder")
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    for archive in [name for name in names if name.startswith("lib") and name.endswith(".a")]:
        prefix = archive.removeprefix("lib").removesuffix(".a")
        names -= {archive, f"lib{prefix}.so", f"{prefix}{WEIGHTS_ENDING}"}
        # Python creates __pycache__ when a program imports the wrapper.
        names -= {*(public_name(name, prefix) for name in _FILES), "__pycache__"}
    if names:
        raise ExportError(f"{folder}: has {min(names)}, which is not part of an exported library; use another folder")


def user_files(network: Network, version: str, prefix: str) -> dict[str, str]:
    """Return the text of each user-facing file of a library, by its name."""
    values = _template_values(network, version, prefix)
    texts = {name: _TEMPLATES.joinpath(f"{name}.in").read_text(encoding="utf-8") for name in _FILES}
    return {
        public_name(name, prefix): Template(public_name(text, prefix)).substitute(values)
        for name, text in texts.items()
    }


def _template_values(network: Network, version: str, prefix: str) -> dict[str, object]:
    is_embedded, macro_prefix = network.weights_inside, prefix.upper()
    file = f'"{prefix}{WEIGHTS_ENDING}"'
    types = {name: number for number, name in enumerate(ITEM_BYTES)}
    return {
        "title": network.title,
        "version": version,
        "model": _quote(network.model),
        "inputs": len(network.inputs),
        "outputs": len(network.outputs),
        "ranges": len(network.ranges),
        "range_notes": "".join(_range_notes(macro_prefix, network)),
        "resize": public_name(_RESIZE, prefix) if network.ranges else "",
        "types": "\n".join(f"#define {macro_prefix}_{name.upper()} {number}" for name, number in types.items()),
        "tensors": "\n".join(_tensor_lines(macro_prefix, network)),
        "arena_bytes": network.layout.size_bytes,
        "weights_bytes": len(network.weights.content),
        "where": "; they are in the library" if is_embedded else f": a file that is mapped, {file}",
        "weights_note": "; unused, since they are in the library" if is_embedded else "",
        "threads": network.threads,
        "levels": ", ".join(_quote(level.name) for level in network.levels),
        "example_settings": "0" if is_embedded else f".weights = {file}",
        "example_weights": "NULL" if is_embedded else f"argc > 1 ? argv[1] : {file}",
        "buffers": "\n".join(
            f"static _Alignas(64) unsigned char {kind}_{number}[{macro_prefix}_{kind.upper()}_{number}_BYTES];"
            for kind, number, _ in _tensors(network)
        ),
        "input_list": ", ".join(f"{{input_{i}, sizeof input_{i}}}" for i in range(len(network.inputs))),
        "output_list": ", ".join(f"{{output_{i}, sizeof output_{i}}}" for i in range(len(network.outputs))),
        "python_inputs": _python_tensors(network.inputs),
        "python_outputs": _python_tensors(network.outputs),
        "python_ranges": {name: (range_.min, range_.max) for name, range_ in network.ranges.items()},
        "python_weights": "None" if is_embedded else f"FOLDER / {file}",
    }


def _tensors(network: Network) -> Iterator[tuple[str, int, TensorInfo]]:
    """Yield the kind, number and description of each input and output."""
    for kind, infos in (("input", network.inputs), ("output", network.outputs)):
        for number, info in enumerate(infos):
            yield kind, number, info


def _tensor_lines(macro_prefix: str, network: Network) -> Iterator[str]:
    for kind, number, info in _tensors(network):
        name = f"{macro_prefix}_{kind.upper()}_{number}"
        yield f"/* {kind.capitalize()} {number}: {info.dtype}, {' x '.join(map(str, _extents(info))) or 'a scalar'}. */"
        yield f"#define {name}_NAME {_quote(info.name)}"
        yield f"#define {name}_TYPE {macro_prefix}_{info.dtype.upper()}"
        yield f"#define {name}_RANK {len(info.shape)}"
        yield f"#define {name}_SHAPE {{{', '.join(map(str, info.shape)) or '0'}}}"
        yield f"#define {name}_ELEMENTS {size_bytes(info) // ITEM_BYTES[info.dtype]}"
        yield f"#define {name}_BYTES ((size_t){size_bytes(info)})"
        yield ""


def _extents(info: TensorInfo) -> tuple[int | str, ...]:
    """Return a shape with the names of its dynamic extents."""
    return tuple(name or extent for name, extent in zip(info.varying or info.shape, info.shape, strict=True))


def _range_notes(macro_prefix: str, network: Network) -> Iterator[str]:
    if network.ranges:
        yield "/* The dynamic sizes. Shapes, elements and bytes below are for the largest sizes. */\n"
    for number, (name, sizes) in enumerate(network.ranges.items()):
        yield f"#define {macro_prefix}_RANGE_{number}_NAME {_quote(name)}\n"
        yield f"#define {macro_prefix}_RANGE_{number}_LEAST {sizes.min}\n"
        yield f"#define {macro_prefix}_RANGE_{number}_MOST {sizes.max}\n\n"


def _python_tensors(infos: Sequence[TensorInfo]) -> str:
    return "[\n" + "".join(f"    ({info.name!a}, {_extents(info)!r}, {info.dtype!r}),\n" for info in infos) + "]"


def _quote(text: str) -> str:
    """Quote a text as a C string literal, with octal escapes."""
    chars = (chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}" for byte in text.encode())
    return f'"{"".join(chars)}"'

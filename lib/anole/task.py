"""A task: one distinct tensor computation (its workload) on one target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, Self

from anole.codec import Range, decode, encode
from anole.errors import shown
from anole.keys import content_key

Size = Annotated[int, Range(1, 2**31 - 1)]
"""The extent of an axis."""

Bits = Literal[4, 8]
"""The width of quantized weights."""

Padding = Annotated[int, Range(0, 2**31 - 1)]
"""The padding on one side of an image."""

MAX_ADDENDS = 8
"""Maximum number of tensors that are added to the scores of attention."""

_WEIGHT_DTYPES, _ACCUMULATOR_DTYPES = {"uint8": "int8"}, {"bfloat16": "float32", "uint8": "int32"}


def weight_dtype(dtype: str) -> str:
    """Return the dtype of the weights for data of a dtype."""
    return _WEIGHT_DTYPES.get(dtype, dtype)


def accumulator_dtype(dtype: str) -> str:
    """Return the accumulator dtype for data of a dtype."""
    return _ACCUMULATOR_DTYPES.get(dtype, dtype)


@dataclass(frozen=True)
class Conv2d:
    """A two-dimensional convolution of NHWC data with HWIO weights.

    Attributes:
        padding: top, left, bottom, right.
        exact: whether data and weights are integers small enough for exact accumulation in `dtype`, which rules out
            algorithms that round, such as Winograd's.
    """

    operator: ClassVar[str] = "conv2d"
    constant_weight: ClassVar[bool] = True

    batch: Size
    height: Size
    width: Size
    in_channels: Size
    out_channels: Size
    kernel: tuple[Size, Size]
    strides: tuple[Size, Size] = (1, 1)
    padding: tuple[Padding, Padding, Padding, Padding] = (0, 0, 0, 0)
    dilation: tuple[Size, Size] = (1, 1)
    groups: Size = 1
    dtype: str = "float32"
    layout: str = "NHWC"
    exact: bool = False

    @property
    def out_height(self) -> int:
        """Rows of the output."""
        window = (self.kernel[0] - 1) * self.dilation[0] + 1
        return (self.padded_height - window) // self.strides[0] + 1

    @property
    def out_width(self) -> int:
        """Columns of the output."""
        window = (self.kernel[1] - 1) * self.dilation[1] + 1
        return (self.padded_width - window) // self.strides[1] + 1

    @property
    def padded_height(self) -> int:
        """Rows of the padded data."""
        return self.height + self.padding[0] + self.padding[2]

    @property
    def padded_width(self) -> int:
        """Columns of the padded data."""
        return self.width + self.padding[1] + self.padding[3]

    @property
    def flop(self) -> int:
        """Floating-point operations: two for each multiply-add."""
        outputs = self.batch * self.out_height * self.out_width * self.out_channels
        return 2 * outputs * self.kernel[0] * self.kernel[1] * (self.in_channels // self.groups)

    @property
    def label(self) -> str:
        """A short name for people, such as ``conv2d 64->64 k3x3 s1 56x56``."""
        parts = [f"conv2d {self.in_channels}->{self.out_channels} k{self.kernel[0]}x{self.kernel[1]}"]
        parts.append(f"s{self.strides[0]}" + (f"x{self.strides[1]}" if self.strides[0] != self.strides[1] else ""))
        if self.dilation != (1, 1):
            parts.append(f"d{self.dilation[0]}x{self.dilation[1]}")
        if self.groups != 1:
            parts.append(f"g{self.groups}")
        parts.append(f"{self.height}x{self.width}")
        if self.dtype != "float32":
            parts.append(self.dtype)
        if self.exact:
            parts.append("exact")
        return " ".join(parts) + (f" n{self.batch}" if self.batch != 1 else "")


@dataclass(frozen=True)
class WeightScheme:
    """Storage of float32 weights as unsigned integers; a weight is (integer - zero point) * scale.

    Attributes:
        bits: bits per integer.
        block: number of consecutive input features that share a scale, per output feature.
        zeros: whether each block also has its own zero point; otherwise it is the midpoint of the integers' range.
    """

    bits: Bits
    block: Size
    zeros: bool = False

    @property
    def numbers(self) -> int:
        """The number of integers packed into a 32-bit word."""
        return 32 // self.bits

    def divides(self, in_features: int) -> bool:
        """Whether the input features divide into blocks, and the blocks into 32-bit words."""
        return in_features % self.block == 0 and self.block % self.numbers == 0


@dataclass(frozen=True)
class Dense:
    """A matrix product of (batch, in_features) data with constant (in_features, out_features) weights.

    Attributes:
        weights: the storage of quantized weights; None if the weights are stored in the dtype that is multiplied.
    """

    operator: ClassVar[str] = "dense"
    constant_weight: ClassVar[bool] = True

    batch: Size
    in_features: Size
    out_features: Size
    dtype: str = "float32"
    exact: bool = False
    weights: WeightScheme | None = None

    @property
    def flop(self) -> int:
        """Floating-point operations: two for each multiply-add."""
        return 2 * self.batch * self.in_features * self.out_features

    @property
    def label(self) -> str:
        """A short name for people, such as ``dense 512->1000``."""
        parts = [f"dense {self.in_features}->{self.out_features}"]
        if self.dtype != "float32":
            parts.append(self.dtype)
        if self.exact:
            parts.append("exact")
        if (scheme := self.weights) is not None:
            block = f"x{scheme.block}" if scheme.block != self.in_features else ""
            parts.append(f"weights {'u' * scheme.zeros}int{scheme.bits}{block}")
        return " ".join(parts) + (f" n{self.batch}" if self.batch != 1 else "")


@dataclass(frozen=True)
class BatchMatmul:
    """Matrix products of (batch, rows, inner) with (batch, inner, columns) data, one for each batch element.

    Attributes:
        transpose_right: whether the right operand is (batch, columns, inner) instead, like the keys in attention.
        exact: whether both operands are 8-bit integers; such workloads are only passed to targets, never stored.
    """

    operator: ClassVar[str] = "batch_matmul"
    constant_weight: ClassVar[bool] = False

    batch: Size
    rows: Size
    inner: Size
    columns: Size
    transpose_right: bool = False
    dtype: str = "float32"
    exact: bool = False

    @property
    def flop(self) -> int:
        """Floating-point operations: two for each multiply-add."""
        return 2 * self.batch * self.rows * self.inner * self.columns

    @property
    def label(self) -> str:
        """A short name for people, such as ``batch_matmul 8x 128x64x128``: batch, rows, inner and columns."""
        sizes = f"{self.batch}x {self.rows}x{self.inner}x{self.columns}"
        label = f"batch_matmul {sizes}" + (" transposed" if self.transpose_right else "")
        return label + (f" {self.dtype}" if self.dtype != "float32" else "")


@dataclass(frozen=True)
class Attention:
    """The product of softmax(queries x keys + sum of the addends) and values, for each batch element, such as a head.

    The shapes are (batch, rows, inner) of the queries, (batch, keys, inner) of the keys, (batch, keys, columns) of the
    values, and (batch, rows, keys) of the addends, such as a mask. The queries are already scaled.

    Attributes:
        addends: number of tensors that are added to the scores.
        masked: whether the result of a row whose scores are all minus infinity is 0, as in torch's operator, not NaN.
    """

    operator: ClassVar[str] = "attention"
    constant_weight: ClassVar[bool] = False

    batch: Size
    rows: Size
    keys: Size
    inner: Size
    columns: Size
    addends: Annotated[int, Range(0, MAX_ADDENDS)] = 0
    masked: bool = False
    dtype: str = "float32"

    @property
    def flop(self) -> int:
        """Floating-point operations of both products: two for each multiply-add."""
        return 2 * self.batch * self.rows * self.keys * (self.inner + self.columns)

    @property
    def label(self) -> str:
        """A short name for people, such as ``attention 12x 197x64x197x64``: batch, rows, inner, keys and columns."""
        sizes = f"{self.batch}x {self.rows}x{self.inner}x{self.keys}x{self.columns}"
        return f"attention {sizes}" + f" +{self.addends}" * (self.addends > 0) + " masked" * self.masked


Workload = Conv2d | Dense | BatchMatmul | Attention

WORKLOADS: dict[str, type[Workload]] = {cls.operator: cls for cls in (Conv2d, Dense, BatchMatmul, Attention)}


def weight_scheme(workload: Workload) -> WeightScheme | None:
    """Return the storage scheme of a workload's quantized weights; None for other weights."""
    return workload.weights if isinstance(workload, Dense) else None


def without_weight_scheme(workload: Workload) -> Workload:
    """Return a workload without the storage scheme of its weights."""
    return replace(workload, weights=None) if isinstance(workload, Dense) else workload


def workload_to_json(workload: Workload) -> dict[str, Any]:
    """Return the JSON form of a workload, its operator first."""
    plain = dict(sorted(encode(workload).items()))
    # These fields were added later; omitting their defaults preserves the keys of older tasks.
    fields = {name: value for name, value in plain.items() if value or name not in ("exact", "weights")}
    return {"operator": workload.operator, **fields}


def workload_from_json(plain: object) -> Workload:
    """Decode a workload from its JSON form; raise ValueError that names the offending field."""
    if not isinstance(plain, Mapping):
        raise ValueError(f"the workload is {shown(plain)}, not an object")
    operator = plain.get("operator")
    if not isinstance(operator, str) or operator not in WORKLOADS:
        raise ValueError(f"the operator is {shown(operator)}, not one of {', '.join(WORKLOADS)}")
    fields = {name: value for name, value in plain.items() if name != "operator"}
    workload = decode(WORKLOADS[operator], fields, strict=True)
    if isinstance(workload, Conv2d) and min(workload.out_height, workload.out_width) < 1:
        raise ValueError(f"{workload.label}: the output would have {workload.out_height}x{workload.out_width} elements")
    if isinstance(workload, Dense) and not (workload.weights is None or workload.weights.divides(workload.in_features)):
        raise ValueError(f"{workload.label}: in_features must be a multiple of the block, which must fill 32-bit words")
    if not 0 < workload.flop < 2**63:
        raise ValueError(f"{workload.label} has {workload.flop} floating-point operations; 1 to 2^63 - 1 are allowed")
    return workload


@dataclass(frozen=True)
class Task:
    """The unit of tuning: a workload on a target, with the version of the target's template."""

    workload: Workload
    target: Mapping[str, Any] = field(hash=False)
    template_version: int

    @cached_property
    def key(self) -> str:
        """The content key; it covers neither the model nor the layer's name."""
        return content_key(self._identity())

    @property
    def label(self) -> str:
        """A short name for people."""
        return self.workload.label

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, as stored in ``tasks/<key>.json``."""
        return {"key": self.key, "label": self.label, "flop": self.workload.flop, **self._identity()}

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Decode a task from its JSON form; raise ValueError that names the offending field."""
        workload, target, version = (plain.get(name) for name in ("workload", "target", "template_version"))
        if not isinstance(target, Mapping) or not isinstance(target.get("kind"), str):
            raise ValueError(f"the target is {shown(target)}, not an object with a kind")
        if type(version) is not int or version < 0:
            raise ValueError(f"the template_version is {shown(version)}, not an integer >= 0")
        return cls(workload_from_json(workload), target, version)

    def _identity(self) -> dict[str, Any]:
        return {
            "workload": workload_to_json(self.workload),
            "target": dict(self.target),
            "template_version": self.template_version,
        }

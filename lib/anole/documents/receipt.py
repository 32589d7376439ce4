"""Receipts: the results of tuning tasks and of refining a build."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from anole.codec import LATER
from anole.documents import layout
from anole.documents.document import decode_document, read_document, read_object, write_document
from anole.errors import DocumentError
from anole.keys import Key, Time
from anole.record import Config
from anole.text_format import pluralize, significant


@dataclass(frozen=True)
class MeasuredConfig:
    """A config and its measured seconds of one call."""

    config: Config = field(hash=False)
    latency_s: float


@dataclass(frozen=True)
class TriedConfig:
    """A config that was tried within a network.

    Attributes:
        latency_s: seconds of one call within the network; None if it was not timed, for example because the config
            cannot be scheduled there.
        latency_alone_s: seconds of one call when the task was tuned in isolation.
        chosen: whether the network is compiled with the config.
    """

    config: Config = field(hash=False)
    latency_s: float | None
    latency_alone_s: float
    chosen: bool


@dataclass(frozen=True)
class Receipt:
    """The result of tuning one task, as later stages read it.

    Attributes:
        config: the best config, which is the fastest or tied with the fastest; None if no candidate worked.
        designs: the fastest config of each hardware design, if hardware is searched.
        refined: the configs that were tried within a network; empty before refining.
    """

    task_key: Key
    run_key: Key
    trials: int
    config: Config | None = field(hash=False)
    latency_s: float | None
    designs: Annotated[tuple[MeasuredConfig, ...], LATER] = ()
    rivals: Annotated[tuple[MeasuredConfig, ...], LATER] = ()
    refined: Annotated[tuple[TriedConfig, ...], LATER] = ()


@dataclass(frozen=True, kw_only=True)
class TuningReceipt(Receipt):
    """The result of tuning one task, with details for reports.

    Attributes:
        status: ``tuned``, or ``failed`` if no candidate worked.
        confirmed: whether the latency was measured again, interleaved with the other top configs, or is exact.
    """

    label: str
    preset: str
    seed: int
    measured: int
    status: str
    confirmed: bool
    gflops: float | None
    statuses: Mapping[str, int] = field(hash=False)
    elapsed_s: float

    def __str__(self) -> str:
        if self.gflops is None:
            return f"{self.label}: " + (f"none of {self.measured} candidates worked" if self.measured else "no trial")
        n_failed = self.measured - self.statuses.get("ok", 0)
        failed = f", {n_failed} failed" if n_failed else ""
        return f"{self.label}: {significant(self.gflops)} GFLOP/s in {pluralize(self.measured, 'trial')}{failed}"


@dataclass(frozen=True)
class SharedReceipts:
    """The receipts of tasks that share one budget of trials."""

    trials: int
    receipts: tuple[TuningReceipt, ...]


@dataclass(frozen=True)
class Refined:
    """The result of refining a build: its tasks' receipts after their candidates were tried within its network.

    Attributes:
        latency_s: seconds per run of the network with the candidates that are best within it; None if nothing changed,
            or if the network did not run.
        unrefined_latency_s: seconds per run of the network with the configs that are best in isolation.
        ratio: `latency_s` over `unrefined_latency_s`, median over the rounds.
        kept: whether any task's config differs from its best config in isolation.
    """

    build: str
    created_at: Time
    latency_s: float | None
    unrefined_latency_s: float | None
    ratio: float | None
    kept: bool
    receipts: tuple[Receipt, ...]


Receipts = Mapping[str, Receipt]
"""Receipts by task key."""


def read_receipts(paths: Iterable[Path]) -> dict[str, Receipt]:
    """Return receipts by task key; a file holds one receipt, or one for each task tuned or refined together."""
    receipts = [receipt for path in paths for receipt in _read(path)]
    return {receipt.task_key: receipt for receipt in receipts}


def read_refined(path: Path) -> Refined:
    """Read the result of refining a build; raise DocumentError if the file is missing or damaged."""
    return read_document(path, Refined, "refine")


def write_receipt(path: Path, receipt: TuningReceipt | SharedReceipts | Refined) -> None:
    """Write the receipt of a task, or the receipts of several."""
    write_document(path, receipt)


def _read(path: Path) -> list[Receipt]:
    stage = layout.receipt_stage(path)
    plain = read_object(path, stage)
    receipts = plain.get("receipts", [plain])
    if not isinstance(receipts, list):
        raise DocumentError(path, "receipts is not a list", stage)
    return [decode_document(receipt, Receipt, path, stage) for receipt in receipts]

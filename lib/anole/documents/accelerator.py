"""What the front of an accelerator is made from: the networks, the targets and their settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class AcceleratorOrder:
    """What the front of an accelerator depends on, except for the trials.

    Attributes:
        models: the weight of each network's latency and energy, by its name.
        targets: the description of each target whose hardware is searched, by its name.
        settings: those of the kind of target.
    """

    models: Mapping[str, float] = field(hash=False)
    targets: Mapping[str, Any] = field(hash=False)
    settings: Mapping[str, Any] = field(hash=False)

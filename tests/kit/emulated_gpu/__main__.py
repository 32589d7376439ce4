"""Runs a command on a machine with an emulated GPU."""

from __future__ import annotations

import sys

from anole.errors import MachineError
from tests.kit.emulated_gpu.machine import environment, run


def main() -> None:
    """Runs the command of the arguments and exits with its status."""
    if len(sys.argv) < 2:
        sys.exit("usage: python -m tests.kit.emulated_gpu COMMAND [ARGUMENTS]")
    try:
        variables = environment()
    except MachineError as error:
        sys.exit(f"anole: {error}")
    sys.exit(run(sys.argv[1:], variables))


if __name__ == "__main__":
    main()

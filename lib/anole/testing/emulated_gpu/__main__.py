"""Runs a command on a machine with an emulated GPU."""

from __future__ import annotations

import sys

from anole.testing.emulated_gpu.machine import environment, run

if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], environment()))

"""Test tools for parts of tuners and for targets: contract test suites, and formulas in place of hardware.

The contract suites need pytest, and the sampler suite also needs hypothesis; the other modules need only Anole.
"""

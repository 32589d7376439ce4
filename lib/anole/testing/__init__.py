"""Test tools for parts of tuners and for targets: contract suites, and substitutes for hardware.

The contract suites need pytest, and the sampler suite also needs hypothesis; the other modules need only Anole.
"""

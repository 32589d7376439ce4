"""What proves a part of a tuner or a target, shipped with the library: contract suites, and stand-ins for hardware.

The contract suites need pytest, and that of samplers hypothesis; the other modules need nothing more than Anole does.
"""

"""The VTA++ accelerator as a target: its instructions, its simulators, and programs for it."""

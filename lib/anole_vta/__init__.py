"""The VTA++ accelerator as a target: instruction set, simulators, and lowering of convolutions to programs."""

"""A kind of target from another package: this machine's CPU, with its own space for convolutions."""

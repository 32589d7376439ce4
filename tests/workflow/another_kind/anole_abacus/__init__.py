"""A kind of target from outside of Anole: this machine's processor, with a space of its own for convolutions."""

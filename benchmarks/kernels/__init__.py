"""How good kernels of the processor are, and what makes them so."""

"""The correctness of builds: their errors compared with references, and the part that rounding may explain."""

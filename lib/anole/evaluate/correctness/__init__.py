"""The correctness of builds: their errors compared with references, and how much rounding may explain."""

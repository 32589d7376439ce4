"""The schedule of everything on the CPU that is not tuned."""

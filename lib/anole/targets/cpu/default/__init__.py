"""The schedule of all untuned functions on the CPU."""

"""The default schedule of untuned functions on the CPU."""

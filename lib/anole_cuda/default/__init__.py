"""The default schedule of untuned functions on CUDA."""

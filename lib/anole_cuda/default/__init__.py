"""The schedule of all untuned functions on CUDA."""

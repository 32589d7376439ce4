"""What tests and benchmarks share: an emulated GPU, recorded tables, and measures of and controls for searches."""

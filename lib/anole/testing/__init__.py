"""What tests and benchmarks of search methods and targets need, shipped with the library."""

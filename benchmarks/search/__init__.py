"""Benchmarks of search methods: experiments on exact tables and hardware, and the claims of the papers."""

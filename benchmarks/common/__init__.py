"""Shared code of the benchmarks: CSV files, Markdown tables, arguments, and measured builds."""

"""Benchmarks of a whole daemon: start, memory, reload, metrics, and thousands of tasks."""

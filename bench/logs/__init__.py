"""Benchmarks of logs: writing, reading, streams, search and exports."""

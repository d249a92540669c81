"""Benchmarks of queries: the store, the endpoints and the dashboard, with a million runs."""

"""Benchmarks: ``python -m bench`` measures a real daemon and prints one table."""

"""Benchmarks of runs: triggers, short runs, slots, notifications and simulation."""

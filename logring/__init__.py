"""Rings and log files: every line that an instance prints, under an absolute number."""

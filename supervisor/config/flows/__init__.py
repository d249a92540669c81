"""Flows in the configuration: the keys of their tables, and the checks of their graphs."""

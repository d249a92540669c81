"""Importers of other programs' configurations, with a report of the parts that cannot be carried over."""

"""The exporter process delivers log lines to one receiver. Each export has its own process; see ``work``."""

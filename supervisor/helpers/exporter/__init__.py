"""The exporter process delivers log lines to one receiver; see ``log_delivery``. Each export has its own process."""

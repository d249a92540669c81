"""The exporter process: delivers the lines of logs to one receiver. One process for each export; see ``work``."""

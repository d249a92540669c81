"""The janitor process: compresses the logs of runs that ended, and keeps all logs within their budget."""

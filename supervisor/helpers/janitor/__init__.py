"""The janitor process compresses logs of ended runs, keeps all logs within their budget and copies the database."""

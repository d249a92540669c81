"""The configuration: one TOML file, checked as a whole, read into frozen records."""

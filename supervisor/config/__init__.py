"""The configuration: one TOML file and the files that it includes, checked as a whole and read into frozen records."""

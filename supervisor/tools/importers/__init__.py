"""Import other programs' configurations, and report the settings that cannot be converted."""

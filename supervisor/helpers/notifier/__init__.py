"""The notifier process delivers notifications and requests heartbeat URLs. No other process loads Apprise."""

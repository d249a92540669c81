"""The notifier process, which delivers notifications and requests heartbeat URLs. Only it loads Apprise."""

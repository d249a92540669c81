"""The process that delivers notifications and asks for heartbeat URLs: the only one that loads Apprise."""

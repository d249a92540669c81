"""What the host and the daemon use."""

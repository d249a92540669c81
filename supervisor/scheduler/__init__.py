"""The scheduler process decides when runs start and stop. It is the only writer of their state."""

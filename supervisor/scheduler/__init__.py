"""The scheduler process: decides when runs start and end, and is the only writer of their state."""

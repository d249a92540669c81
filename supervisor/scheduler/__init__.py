"""The scheduler process: decides what runs when, and is the only writer of run state."""

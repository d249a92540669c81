"""Commands that act on several tasks and services: which ones, their states, and their logs."""

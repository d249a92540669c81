"""Helpers of commands that act on several tasks and services: choosing them, waiting for them, printing their logs."""

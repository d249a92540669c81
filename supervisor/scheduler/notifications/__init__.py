"""Notifications: when they are raised, which notifiers receive them, and delivery at least once.

Only the scheduler imports this room. The notifier process sends the messages.
"""

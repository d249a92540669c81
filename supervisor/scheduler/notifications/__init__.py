"""Notifications: which are raised, who receives them, and delivery at least once.

Only the scheduler imports this room. The notifier process delivers.
"""

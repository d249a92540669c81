"""What people are told, when, and how it is delivered at least once.

Only the scheduler imports this room. Delivery itself is the notifier process's.
"""

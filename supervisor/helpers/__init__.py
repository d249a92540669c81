"""Helper processes of the scheduler: watchers, janitor, notifier and exporters.

No module imports a helper. The scheduler starts each by name, and its client stands with its subject there.
"""

"""Helper processes of the scheduler: watcher, janitor and notifier.

No module imports a helper. The scheduler starts each by name, and its client stands with its subject there.
"""

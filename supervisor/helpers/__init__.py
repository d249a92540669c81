"""Helper processes of the scheduler: watcher, janitor and notifier.

Nobody imports a helper; each is started by name, and its client stands with its subject in the scheduler.
"""

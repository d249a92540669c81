"""The scheduler's helper processes: watcher, file watcher, janitor, notifier and exporters.

No other room imports a helper. The scheduler starts each helper by its name. The client of a helper is in the
scheduler, in the room of its subject. Helpers that serve many requests share :mod:`.process_setup`.
"""

"""The file watcher process reports changed files for which tasks with ``on_change`` must run."""

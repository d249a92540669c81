"""The file watcher process: reports the files for which tasks with ``on_change`` run."""

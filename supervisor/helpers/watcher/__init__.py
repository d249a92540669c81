"""The watcher process probes services and searches the output of runs."""

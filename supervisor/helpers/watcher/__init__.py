"""The watcher process: looks at runs from outside, by probes and by what they print."""

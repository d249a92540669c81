"""The command line: ``ringward up`` starts the daemon, the other commands talk to it."""

"""The command line. ``ringward up`` starts the daemon; other commands are clients of its API."""

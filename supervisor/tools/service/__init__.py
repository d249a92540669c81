"""The files and commands with which ``ringward service`` installs the daemon under an init system."""

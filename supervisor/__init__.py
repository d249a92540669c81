"""The daemon: root process, scheduler process, configuration, command line and the messages between them."""

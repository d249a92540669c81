"""The commands, one per module; each has its ``command``, loaded when it is called."""

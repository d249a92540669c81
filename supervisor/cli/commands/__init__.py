"""The commands, one per module, which is imported when its ``command`` is called."""

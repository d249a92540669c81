"""Other programs' configurations, as far as they can be carried over, and what could not be."""

"""Other process managers, side by side with Ringward: ``python -m bench peers``."""

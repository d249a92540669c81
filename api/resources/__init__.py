"""One noun per file: its operations, and what carries them out."""

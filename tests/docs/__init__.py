"""What the documentation shows is carried out: commands against a real daemon, files as they stand there."""

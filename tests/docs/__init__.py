"""Runs the commands of the documentation against a real daemon, with its files as shown."""

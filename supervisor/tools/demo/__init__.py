"""The content of ``ringward demo``: a made-up shop's tasks and services, and a year of their history."""

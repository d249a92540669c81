"""The content of ``ringward demo``: the tasks and services of an imaginary shop, and a year of their history."""

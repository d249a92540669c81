"""The root process: forks instances, pumps their output into rings, reaps and stops them. Standard library only."""

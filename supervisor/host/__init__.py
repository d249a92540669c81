"""Facts that the kernel and the host tell: processes, cgroups, users, time zones, sockets, usage.

Every process of the daemon may import this room. It imports nothing of ours, and keeps no state of runs.
"""

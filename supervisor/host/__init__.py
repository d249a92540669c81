"""Access to the kernel and the host: processes, cgroups, users, time zones, sockets and resource usage.

Every process of the daemon may import this room. It imports no other room and keeps no state of runs.
"""

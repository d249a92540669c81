"""Communication between the daemon's processes: messages, doorbells, sockets, and the start of helper processes.

Every process may import this room, which imports only :mod:`supervisor.host`. No decision about a run is made here.
"""

"""How processes of the daemon talk: messages, doorbells, sockets, and helper processes at their other end.

Every process may import this room; it imports only :mod:`supervisor.host`. It decides nothing about runs.
"""

"""The API server as a process: gunicorn's arbiter and workers, sockets, TLS, and limits per client.

Nothing of the application is imported at the top of the arbiter. Resources do not import this room.
"""

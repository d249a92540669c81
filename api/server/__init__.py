"""The API server's processes: gunicorn's arbiter and workers, sockets, TLS, and limits per client.

The arbiter imports nothing of the application at its top. The resources do not import this package.
"""

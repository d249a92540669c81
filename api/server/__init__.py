"""The API server's processes: gunicorn's arbiter and workers, sockets, TLS, and limits per client.

The resources do not import this package.
"""

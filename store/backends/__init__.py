"""The two databases behind one connection: SQLite and PostgreSQL.

Only :mod:`store` imports this room. SQL that differs between the two stands here and nowhere else.
"""

"""The two kinds of databases behind one interface: SQLite and PostgreSQL.

Only :mod:`store` imports this package. It contains all code that differs between the two databases, except migrations.
"""

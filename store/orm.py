"""The parts of peewee that we use, loaded without the drivers of databases that we do not.

peewee loads every installed driver in every process: psycopg alone takes 0.1 s and 15 MB, and the system's SQLite would
be loaded beside the one that apsw brings. A process that needs one of them loads it before this module.
"""

import sys
from typing import Any

_DRIVERS = ("psycopg2cffi", "psycopg2", "psycopg", "pymysql", "MySQLdb", "pysqlite3", "sqlite3")

_hidden: Any = {name: None for name in _DRIVERS if name not in sys.modules}  # None: importing it fails at once
sys.modules.update(_hidden)
try:
    from peewee import (
        AutoField,
        BooleanField,
        CompositeKey,
        IntegerField,
        Model,
        PeeweeException,
        PostgresqlDatabase,
        TextField,
    )
    from playhouse.apsw_ext import APSWDatabase
finally:
    for _name in _hidden:
        del sys.modules[_name]

__all__ = [
    "APSWDatabase",
    "AutoField",
    "BooleanField",
    "CompositeKey",
    "IntegerField",
    "Model",
    "PeeweeException",
    "PostgresqlDatabase",
    "TextField",
]

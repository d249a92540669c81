"""The statement by which triggers add to sums: to the row with a key if there is one, else they make it.

For PostgreSQL it is one `INSERT … ON CONFLICT DO UPDATE`. SQLite is given an `INSERT … ON CONFLICT DO NOTHING` of zeros
and an `UPDATE`: where one of its triggers has a `DO UPDATE`, or an `INSERT … SELECT`, each statement that might fire it
copies every page before it changes it, to be able to take itself back, and that costs more than the counting.
"""

from collections.abc import Sequence
from typing import NamedTuple

from store.connection import Connection


class Addition(NamedTuple):
    """What is added to a row of a table; each value is an expression by the name of its column.

    Attributes:
        table: Whose rows have sums.
        sums: Is added.
        known: Is added as well, where NULL means that nobody knows: then the sum is of the others.
        least: Takes the place of a greater one, or of NULL.
        greatest: Takes the place of a smaller one, or of NULL.
    """

    table: str
    sums: dict[str, str]
    known: dict[str, str] = {}  # noqa: RUF012 - nobody changes it
    least: dict[str, str] = {}  # noqa: RUF012
    greatest: dict[str, str] = {}  # noqa: RUF012

    def values(self) -> dict[str, str]:
        """The row that is made when there is none."""
        return self.sums | self.known | self.least | self.greatest

    def changes(self, values: dict[str, str]) -> str:
        """What of a row that is there is set, with the values by name of the column."""
        had = {name: f"{self.table}.{name}" for name in values}
        parts = [f"{name} = {had[name]} + {values[name]}" for name in self.sums]
        parts += [
            f"{name} = COALESCE({had[name]} + {values[name]}, {had[name]}, {values[name]})" for name in self.known
        ]
        for names, order in ((self.least, "<="), (self.greatest, ">=")):
            parts += [
                f"{name} = CASE WHEN {had[name]} {order} {values[name]} OR {values[name]} IS NULL"
                f" THEN {had[name]} ELSE {values[name]} END"
                for name in names
            ]
        return ", ".join(parts)


def add(db: Connection, addition: Addition, keys: Sequence[dict[str, str]], source: str = "WHERE true") -> str:
    """The statements that add to one row for each key, each with a semicolon.

    Args:
        db: Whose words they are in.
        addition: What is added.
        keys: Expressions by name of the columns of a primary key; they differ.
        source: For PostgreSQL: what follows the expressions in a SELECT that finds one row at most.
    """
    table, made = addition.table, addition.values()
    into = f"INSERT INTO {table} ({', '.join((*keys[0], *made))})"
    if not db.sqlite:
        rows = [f"SELECT {', '.join((*key.values(), *made.values()))} {source}" for key in keys]
        changes = addition.changes({name: f"excluded.{name}" for name in made})
        return f"{into} {' UNION ALL '.join(rows)} ON CONFLICT ({', '.join(keys[0])}) DO UPDATE SET {changes};"
    # In brackets: the value of a column may be a difference.
    update = f"UPDATE {table} SET {addition.changes({name: f'({value})' for name, value in made.items()})}"  # noqa: S608 - ours
    nothing = dict.fromkeys(addition.sums, "0") | dict.fromkeys(addition.known, "NULL")
    return "".join(
        f"{into} VALUES ({', '.join((*key.values(), *(made | nothing).values()))}) ON CONFLICT DO NOTHING;"
        f"{update} WHERE {' AND '.join(f'{table}.{name} = {value}' for name, value in key.items())};"
        for key in keys
    )

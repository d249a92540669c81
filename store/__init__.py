"""The database: models, queries, migrations."""

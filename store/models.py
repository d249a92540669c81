"""peewee models of some tables. Queries of runs and of other tables use raw SQL, for example in store.runs.writes.

The models are bound to no database: `Database.fetch` and `Database.apply` run a query on one of its connections. The
migrations create the schema itself; a test compares it with the models.
"""

from peewee import AutoField, BooleanField, CompositeKey, IntegerField, Model, TextField


class TaskModel(Model):
    """A task or service, with its definition and the scheduler's state."""

    name = TextField(primary_key=True)
    kind = TextField()
    definition = TextField()
    configured = BooleanField()
    paused = BooleanField()
    stopped = BooleanField()
    last_instant = IntegerField(null=True)
    next_run_at = IntegerField(null=True)
    last_run_id = TextField(null=True)
    fatal_since = IntegerField(null=True)
    rolling = TextField(null=True)
    last_restart = TextField(null=True)
    last_boot = TextField(null=True)
    failures = IntegerField(default=0)
    failed_attempts = IntegerField(default=0)
    flapping_since = IntegerField(null=True)
    acknowledged = TextField(null=True)
    withheld = TextField(null=True)
    promises = TextField(null=True)

    class Meta:
        """Its table."""

        table_name = "tasks"


class InstanceModel(Model):
    """One instance of a service."""

    task_name = TextField()
    instance_index = IntegerField()
    state = TextField()
    run_id = TextField(null=True)
    since = IntegerField()
    failures = IntegerField()
    ready = BooleanField()
    detail = TextField(null=True)
    next_run = TextField(null=True)

    class Meta:
        """Its table."""

        table_name = "instances"
        primary_key = CompositeKey("task_name", "instance_index")


class OutboxModel(Model):
    """An event, stored together with the change that it reports."""

    seq = AutoField()
    kind = TextField()
    created_at = IntegerField()
    body = TextField()

    class Meta:
        """Its table."""

        table_name = "outbox"


class SessionModel(Model):
    """A web session."""

    hash = TextField(primary_key=True)
    password_tag = TextField()
    created_at = IntegerField()
    last_used_at = IntegerField()

    class Meta:
        """Its table."""

        table_name = "sessions"


class MetaModel(Model):
    """A named value."""

    key = TextField(primary_key=True)
    value = TextField()

    class Meta:
        """Its table."""

        table_name = "meta"

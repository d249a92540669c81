"""``ringward schema``: prints the JSON Schema of the configuration."""

import click


@click.command("schema", epilog="Example: ringward schema > ringward.schema.json")
@click.option("--json", is_flag=True, expose_value=False, help="Has no effect: the output is JSON.")
def command() -> None:
    """Print the JSON Schema of the configuration (2020-12), for editors."""
    from supervisor.cli.tables import show_json
    from supervisor.config.jsonschema import document

    show_json(document())

"""A group of commands that names the nearest one when somebody has mistyped."""

import click


class SuggestingGroup(click.Group):
    """As click's, but for commands that are unknown."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does; of a name that no command has, the nearest one that is."""
        names = self.list_commands(ctx)
        if args and args[0] not in names and not args[0].startswith("-") and not ctx.resilient_parsing:
            import difflib  # 5 ms, for those who mistyped

            near = difflib.get_close_matches(args[0], names, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            ctx.fail(f"No such command '{args[0]}'.{hint}")
        return super().resolve_command(ctx, args)

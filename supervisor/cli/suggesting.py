"""Suggestions for commands and options that do not exist."""

import click


class SuggestingGroup(click.Group):
    """As click's, but for commands that are unknown."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve as click does; for an unknown name, suggest its synonym in other programs, else the nearest."""
        names = self.list_commands(ctx)
        if args and args[0] not in names and not args[0].startswith("-") and not ctx.resilient_parsing:
            import difflib  # 5 ms, only after a typing error

            from supervisor.config.synonyms import COMMANDS, meant

            synonym = meant(args[0], names, COMMANDS)
            near = [synonym] if synonym else difflib.get_close_matches(args[0], names, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            ctx.fail(f"No such command '{args[0]}'.{hint}")
        return super().resolve_command(ctx, args)


def with_suggestion(err: click.NoSuchOption) -> click.NoSuchOption:
    """Return the same error with a suggestion: the option that other programs call so, else a similar spelling."""
    import difflib

    from supervisor.config.synonyms import OPTIONS, meant

    known = [] if err.ctx is None else [name for one in err.ctx.command.get_params(err.ctx) for name in one.opts]
    long = {name.lstrip("-"): name for name in known if name.startswith("--")}
    synonym = meant(err.option_name, known, OPTIONS)
    near = difflib.get_close_matches(err.option_name.lstrip("-"), long, n=1, cutoff=0.7)
    suggested = synonym or next((long[one] for one in near), None)
    hint = f" Did you mean {suggested}?" if suggested else ""
    return click.NoSuchOption(err.option_name, err.message + hint, ctx=err.ctx)  # click's own goes by spelling alone

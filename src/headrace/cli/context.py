"""`headrace context list|show|use`: contexts, which say how to reach a cluster. It needs no running broker."""

from typing import Annotated

import typer

from headrace.cli.output import Json, print_json, print_table
from headrace.cli.shared import AsJson
from headrace.client.security.command_options import DEFAULT_BOOTSTRAP
from headrace.client.security.contexts import (
    Context,
    context_names,
    current_context,
    directory,
    read_context,
    use_context,
)
from headrace.client.security.secrets import redacted
from headrace.errors import InvalidConfig
from headrace.printable import printable

app = typer.Typer(no_args_is_help=True)


@app.command("list")
def list_contexts(json: AsJson = False) -> None:
    """List the contexts: the .toml files in ~/.config/headrace."""
    current = current_context()
    found = [_read(name) for name in context_names()]
    if json:
        print_json([{**_as_json(each), "current": each.name == current} for each in found])
        return
    if not found:
        print(f"there are no contexts; write one to {directory()}/NAME.toml")
        return
    rows = [
        (
            "*" if each.name == current else "",
            each.name,
            each.bootstrap or DEFAULT_BOOTSTRAP,
            each.options.get("security.protocol", "PLAINTEXT"),
            printable(each.warning or ""),
        )
        for each in found
    ]
    print_table(["", "NAME", "BOOTSTRAP", "PROTOCOL", "WARNING"], rows)


@app.command()
def show(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The context; without it, the current one.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Show a context. Secrets are hidden."""
    chosen = name or current_context()
    if chosen is None:
        raise InvalidConfig("no context is current: name one, or choose one with headrace context use NAME")
    found = read_context(chosen)
    if json:
        print_json(_as_json(found))
        return
    rows = [("file", str(found.path)), ("bootstrap", found.bootstrap or DEFAULT_BOOTSTRAP)]
    print_table(
        ["OPTION", "VALUE"], [*rows, *((key, printable(text)) for key, text in redacted(found.options).items())]
    )
    if found.warning:
        print(f"warning: {printable(found.warning)}")


@app.command()
def use(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The context.")] = None,
    none: Annotated[bool, typer.Option("--none", help="Use no context.")] = False,
) -> None:
    """Choose the context of commands that are not told where to connect."""
    if (name is None) is not none:
        raise InvalidConfig("give either the name of a context or --none")
    use_context(name)
    print("no context is current" if name is None else f"context {name} is current")


def _read(name: str) -> Context:
    """A context for a list, which a file that cannot be read does not hide."""
    try:
        return read_context(name)
    except InvalidConfig as wrong:
        return Context(name, directory() / f"{name}.toml", None, {}, wrong.message)


def _as_json(context: Context) -> dict[str, Json]:
    return {
        "name": context.name,
        "file": str(context.path),
        "bootstrap": context.bootstrap or DEFAULT_BOOTSTRAP,
        "options": redacted(context.options),
        "warning": context.warning,
    }

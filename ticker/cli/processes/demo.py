"""`ticker demo`: shows the ticker at work, on servers that it starts itself."""

import click

from ticker.errors import ConfigurationError


@click.command()
@click.option("--web", is_flag=True, help="Also serve the page, and continue until interrupted.")
@click.pass_context
def demo(context: click.Context, web: bool) -> None:
    """Poll simulated mailboxes and show what happens.

    Starts its own PostgreSQL, Valkey and workers. Everything it creates is removed at the end.
    """
    try:
        from ticker.demo.main import demo as show
    except ModuleNotFoundError as error:
        raise ConfigurationError(f'the demo needs {error.name}: pip install "rq-ticker[demo]"') from error
    context.exit(show(web))

"""`ticker demo`: shows the ticker at work, on servers that it starts itself."""

import click

from ticker.errors import ConfigurationError
from ticker.schedules.duration import DAY, SECOND, milliseconds


@click.command()
@click.option("--seconds", metavar="N", default="30", show_default=True, help="How long the demo lasts.")
@click.option("--keep", is_flag=True, help="Continue until interrupted.")
@click.option("--web", is_flag=True, help="Also serve the page, and continue until interrupted.")
@click.option("--verbose", is_flag=True, help="Print each run as it ends, and the logs of all processes at the end.")
@click.pass_context
def demo(context: click.Context, seconds: str, keep: bool, web: bool, verbose: bool) -> None:
    """Poll simulated mailboxes and show what happens.

    Starts its own servers, or uses those that DATABASE_URL and REDIS_URL name. Everything it creates is removed at the end.
    """
    lasts = milliseconds("--seconds", seconds, least=SECOND, most=DAY) / SECOND
    try:
        from ticker.demo.main import demo as show
    except ModuleNotFoundError as error:
        raise ConfigurationError(f'the demo needs {error.name}: pip install "rq-ticker[demo]"') from error
    context.exit(show(lasts, keep or web, web, verbose))

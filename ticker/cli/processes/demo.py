"""`ticker demo`: see it work, with nothing installed by hand."""

import click

from ticker.errors import ConfigurationError
from ticker.schedules.duration import DAY, SECOND, milliseconds


@click.command()
@click.option("--seconds", metavar="N", default="30", show_default=True, help="How long it lasts.")
@click.option("--keep", is_flag=True, help="Go on until interrupted.")
@click.option("--web", is_flag=True, help="Serve the page, too, and go on until interrupted.")
@click.option("--verbose", is_flag=True, help="Print each run as it ends, and at the end the logs of all processes.")
@click.pass_context
def demo(context: click.Context, seconds: str, keep: bool, web: bool, verbose: bool) -> None:
    """Poll mailboxes, and watch it.

    With servers of its own, or those of DATABASE_URL and REDIS_URL; all that it made is removed at the end.
    """
    lasts = milliseconds("--seconds", seconds, least=SECOND, most=DAY) / SECOND
    try:
        from ticker.demo.main import demo as show
    except ModuleNotFoundError as error:
        raise ConfigurationError(f'the demo needs {error.name}: pip install "rq-ticker[demo]"') from error
    context.exit(show(lasts, keep or web, web, verbose))

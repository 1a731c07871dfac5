"""Runs the command `ticker` as `manage.py ticker ...`, on a database of DATABASES and with Django set up."""

import os
from argparse import REMAINDER, ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from ticker.cli import main
from ticker.django.apps import database_url, redis_url


class Command(BaseCommand):
    help = "Passes its arguments to the command ticker: manage.py ticker --help"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("args", nargs=REMAINDER)  # for call_command

    def run_from_argv(self, argv: list[str]) -> None:
        done = ("--settings=", "--pythonpath=")  # handled by manage.py
        self.handle(*(argument for argument in argv[2:] if not argument.startswith(done)))

    def handle(self, *arguments: str, **_: Any) -> None:
        """Ends the process with the exit code of `ticker`, or returns if that is 0.

        A worker sets Django up before it imports tasks.
        """
        urls = {"DATABASE_URL": database_url(), "REDIS_URL": os.environ.get("REDIS_URL") or redis_url()}
        os.environ.update({name: url for name, url in urls.items() if url})  # for the processes that it starts
        if arguments[:1] == ("worker",):
            is_named = any(argument.partition("=")[0] == "--tasks" for argument in arguments)
            tasks = "" if is_named else os.environ.get("TICKER_TASKS", "")
            arguments = ("worker", "--tasks", f"ticker.django.setup,{tasks}", *arguments[1:])
        try:
            main.main(args=list(arguments), prog_name="ticker")
        except SystemExit as end:
            if end.code:
                raise

"""Sets Django up. A worker of `manage.py ticker worker` imports this module before the modules of its tasks."""

from functools import partial

import django

from ticker.settings import add_source

django.setup()

from ticker.django.apps import variables  # noqa: E402  (it needs Django's settings)

add_source(partial(variables, outside=None))  # the DATABASE_URL of this process takes precedence over Django's settings

"""Sets Django up. `manage.py ticker worker` has a worker import this before the modules of its tasks."""

import django

django.setup()

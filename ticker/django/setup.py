"""Sets Django up. A worker of `manage.py ticker worker` imports this module before the modules of its tasks."""

import django

django.setup()

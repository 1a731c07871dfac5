"""A Django application: INSTALLED_APPS = [..., "ticker.django"]. See docs/guides/recipes/django.md."""

"""A Django application: INSTALLED_APPS = [..., "ticker.django"]. How to use it stands in docs/recipes/django.md."""

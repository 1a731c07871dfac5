"""Adds events that count the occurrences that were not pushed."""

from django.db import migrations

from ticker.django.operations import Tables


class Migration(migrations.Migration):
    dependencies = (("ticker", "0008_functions"),)
    operations = (Tables("0017"),)

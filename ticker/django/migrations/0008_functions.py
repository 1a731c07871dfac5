"""Adds the queues of workers, and notices of functions that no worker has announced."""

from django.db import migrations

from ticker.django.operations import Tables


class Migration(migrations.Migration):
    dependencies = (("ticker", "0007_minutes"),)
    operations = (Tables("0016"),)

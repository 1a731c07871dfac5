"""Adds requests to stop a run."""

from django.db import migrations

from ticker.django.operations import Tables


class Migration(migrations.Migration):
    dependencies = (("ticker", "0003_limits"),)
    operations = (Tables("0012"),)

"""Adds pauses of many tasks, and hours of the day for intervals."""

from django.db import migrations

from ticker.django.operations import Tables


class Migration(migrations.Migration):
    dependencies = (("ticker", "0005_elastic"),)
    operations = (Tables("0014"),)

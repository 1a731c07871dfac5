"""Adds minutes: what ended in each minute, the workers of each queue, and how many it needs."""

from django.db import migrations

from ticker.django.operations import Tables


class Migration(migrations.Migration):
    dependencies = (("ticker", "0006_pauses"),)
    operations = (Tables("0015"),)

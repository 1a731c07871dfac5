"""Adds limits by key, and the outcome `held_off`."""

from django.db import migrations

from ticker.django.operations import Tables


class Migration(migrations.Migration):
    dependencies = (("ticker", "0002_groups"),)
    operations = (Tables("0011"),)

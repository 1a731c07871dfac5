"""Adds elastic intervals."""

from django.db import migrations

from ticker.django.operations import Tables


class Migration(migrations.Migration):
    dependencies = (("ticker", "0004_stop"),)
    operations = (Tables("0013"),)

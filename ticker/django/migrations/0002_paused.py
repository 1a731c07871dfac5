"""Builds the index of paused tasks anew."""

from django.db import migrations

from ticker.django.operations import Tables


class Migration(migrations.Migration):
    dependencies = (("ticker", "0001_tables"),)
    operations = (Tables(),)

"""Adds the trace contexts of manual runs, and the instant up to which traces are exported."""

from django.db import migrations

from ticker.django.operations import Tables


class Migration(migrations.Migration):
    dependencies = (("ticker", "0009_unpushed"),)
    operations = (Tables("0018"),)

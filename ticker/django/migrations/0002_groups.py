"""Adds the outcome `interrupted` and tasks that run alone, and allows 1,000 tasks in a job."""

from django.db import migrations

from ticker.django.operations import Tables


class Migration(migrations.Migration):
    dependencies = (("ticker", "0001_tables"),)
    operations = (Tables("0010"),)

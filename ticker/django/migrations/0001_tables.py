"""Creates the tables, or uses those that `ticker db upgrade` has created. The model of the tasks has permissions."""

from django.db import migrations, models

from ticker.django.models import OPTIONS
from ticker.django.operations import Tables

ID = models.BigIntegerField(primary_key=True, serialize=False)


class Migration(migrations.Migration):
    operations = (Tables(drop=True), migrations.CreateModel("Task", [("id", ID)], OPTIONS))

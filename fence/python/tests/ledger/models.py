from django.db import models


class Entry(models.Model):
    account_id = models.TextField()
    amount = models.IntegerField()

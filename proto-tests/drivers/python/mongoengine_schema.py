"""The models of an application on MongoEngine: trades, and the customers that they are of."""

from datetime import datetime, timedelta

from bson import ObjectId
from mongoengine import (
    DateTimeField,
    Document,
    EmbeddedDocument,
    EmbeddedDocumentField,
    EmbeddedDocumentListField,
    IntField,
    ListField,
    QuerySet,
    StringField,
)


class Note(EmbeddedDocument):
    text = StringField(required=True)
    by = StringField()


class Settlement(EmbeddedDocument):
    at = DateTimeField()
    by = StringField()


class Trades(QuerySet):
    def page(self, customer, number, size=10):
        return self.filter(customer=customer).order_by("date").skip(size * (number - 1)).limit(size)


class Trade(Document):
    customer = IntField(db_field="customerId", required=True)
    type = StringField(choices=("buy", "sell"), required=True)
    ticker = StringField(required=True)
    quantity = IntField(min_value=0, required=True)
    date = DateTimeField(required=True)
    tags = ListField(StringField())
    notes = EmbeddedDocumentListField(Note)
    settled = EmbeddedDocumentField(Settlement)

    # The indexes are made when the collection is first used, as `auto_create_index` is on unless it is turned off.
    meta = {
        "collection": "trades",
        "queryset_class": Trades,
        "indexes": [
            ("customer", "-date"),
            ("ticker", "quantity"),
            {"fields": ["settled.at"], "name": "by_settlement"},
        ],
    }


class Customer(Document):
    number = IntField(primary_key=True)
    name = StringField()

    meta = {"collection": "customers"}


def object_id(number):
    """Ids as drivers give them, but the same in every run."""
    return ObjectId(f"{number:024x}")


def fields(number):
    return {
        "id": object_id(number),
        "customer": 123 if number % 5 < 3 else 456,
        "type": "buy" if number % 3 == 0 else "sell",
        "ticker": "MDB" if number % 2 == 0 else "GOOG",
        "quantity": 10 * number,
        "date": datetime(2023, 10, 26, 15, 47, 3, 434000) + timedelta(minutes=number),
    }


def trade(number, **others):
    return Trade(**(fields(number) | others))

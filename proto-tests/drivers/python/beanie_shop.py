"""The models of a shop on Beanie: customers, couriers, and the orders that they get and carry."""

from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Annotated

import pymongo
from beanie import Document, Indexed, Link, PydanticObjectId
from pydantic import BaseModel, Field


class Customer(Document):
    email: Annotated[str, Indexed(unique=True)]
    name: str

    class Settings:
        name = "customers"


class Courier(Document):
    name: str

    class Settings:
        name = "couriers"


class Status(str, Enum):
    CART = "cart"
    PLACED = "placed"
    PAID = "paid"
    SENT = "sent"
    CANCELLED = "cancelled"


class Line(BaseModel):
    sku: str
    quantity: int = Field(ge=1)
    price: float


class Order(Document):
    number: Annotated[str, Indexed(unique=True)]
    customer: PydanticObjectId
    placed_at: datetime
    status: Annotated[Status, Indexed()] = Status.PLACED
    lines: list[Line] = []
    courier: Link[Courier] | None = None
    priority: int = 0
    note: str | None = None
    # A cart is given up when this has passed.
    held_until: datetime | None = None

    class Settings:
        name = "orders"
        use_revision = True
        use_state_management = True
        indexes = [
            [("customer", pymongo.ASCENDING), ("placed_at", pymongo.DESCENDING)],
            "lines.sku",
            pymongo.IndexModel("held_until", expireAfterSeconds=0),
        ]


class Short(BaseModel):
    """What a list of orders shows."""

    number: str
    status: Status


class Sales(BaseModel):
    """A group of an aggregation."""

    customer: str
    sold: float
    orders: int


def numbered(number: int, customer: Customer, **more) -> Order:
    lines = [Line(sku=f"S{(number + at) % 7}", quantity=1 + at, price=2.5 * (1 + number % 4)) for at in range(1 + number % 3)]
    placed_at = datetime(2026, 1, 1, 12, tzinfo=timezone.utc) + timedelta(days=number)
    return Order(**{"number": f"A-{number:04}", "customer": customer.id, "placed_at": placed_at, "lines": lines} | more)

import sys
from datetime import datetime
from pymongo import MongoClient

trades = MongoClient(sys.argv[1]).shop.trades
trades.drop()
for n in range(1, 7):
    trades.insert_one({"_id": n, "customer": 7, "date": datetime(2026, 5, n), "qty": 5 * n})
for trade in trades.find({"customer": 7}).sort("date", -1).limit(3):
    print(trade)

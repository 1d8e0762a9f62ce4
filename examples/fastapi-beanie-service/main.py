"""Measurements of sensors, on FastAPI and Beanie."""

import os
from contextlib import asynccontextmanager
from datetime import datetime, timezone
from typing import Annotated

import uvicorn
from beanie import Document, init_beanie
from fastapi import FastAPI, HTTPException, Query
from pydantic import AwareDatetime, BaseModel, Field
from pymongo import ASCENDING, DESCENDING, AsyncMongoClient, IndexModel
from pymongo.errors import BulkWriteError

DUPLICATE_KEY = 11000


class Measurement(Document):
    site: str
    sensor: str
    at: AwareDatetime
    temperature: float
    humidity: int | None = Field(default=None, ge=0, le=100)
    flags: list[str] = []

    class Settings:
        name = "measurements"
        indexes = [IndexModel([("site", ASCENDING), ("sensor", ASCENDING), ("at", ASCENDING)], unique=True), "flags"]


class Reading(BaseModel):
    """A measurement in the list of a sensor."""

    at: datetime
    temperature: float


class Correction(BaseModel):
    temperature: float


@asynccontextmanager
async def lifespan(_app: FastAPI):
    client = AsyncMongoClient(os.environ.get("MONGODB_URI", "mongodb://127.0.0.1:27017/plant"), tz_aware=True)
    await init_beanie(client.get_default_database(), document_models=[Measurement])
    yield
    await client.close()


app = FastAPI(lifespan=lifespan)


def of_sensor(site: str, sensor: str):
    return Measurement.find(Measurement.site == site, Measurement.sensor == sensor)


@app.post("/measurements", status_code=201)
async def add(measurements: list[Measurement]):
    """Sensors send a measurement again if they get no answer: it is stored once."""
    try:
        await Measurement.insert_many(measurements, ordered=False)
    except BulkWriteError as error:
        if any(failed["code"] != DUPLICATE_KEY for failed in error.details["writeErrors"]):
            raise
        return {"added": error.details["nInserted"], "known": [failed["index"] for failed in error.details["writeErrors"]]}
    return {"added": len(measurements), "known": []}


@app.get("/sites/{site}/sensors/{sensor}/latest")
async def latest(site: str, sensor: str) -> Measurement:
    measurement = await of_sensor(site, sensor).sort(-Measurement.at).first_or_none()
    if measurement is None:
        raise HTTPException(404)
    return measurement


@app.get("/sites/{site}/sensors/{sensor}")
async def readings(
    site: str,
    sensor: str,
    start: AwareDatetime = datetime.min.replace(tzinfo=timezone.utc),
    end: AwareDatetime = datetime.max.replace(tzinfo=timezone.utc),
    skip: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> list[Reading]:
    between = of_sensor(site, sensor).find(Measurement.at >= start, Measurement.at < end)
    return await between.sort(+Measurement.at).skip(skip).limit(limit).project(Reading).to_list()


@app.patch("/sites/{site}/sensors/{sensor}/{at}")
async def correct(site: str, sensor: str, at: AwareDatetime, correction: Correction) -> Measurement:
    measurement = await of_sensor(site, sensor).find(Measurement.at == at).first_or_none()
    if measurement is None:
        raise HTTPException(404)
    return await measurement.update({"$set": correction.model_dump(), "$addToSet": {"flags": "corrected"}})


@app.post("/sites/{site}/sensors/{sensor}/suspect")
async def mark_suspect(site: str, sensor: str, above: float):
    result = await of_sensor(site, sensor).find(Measurement.temperature > above).update({"$addToSet": {"flags": "suspect"}})
    return {"matched": result.matched_count, "modified": result.modified_count}


@app.get("/flags/{flag}")
async def flagged(flag: str) -> list[Measurement]:
    return await Measurement.find(Measurement.flags == flag).sort((Measurement.at, DESCENDING), (Measurement.sensor, ASCENDING)).to_list()


@app.delete("/sites/{site}/sensors/{sensor}")
async def delete(site: str, sensor: str, before: AwareDatetime):
    result = await of_sensor(site, sensor).find(Measurement.at < before).delete()
    return {"deleted": result.deleted_count}


@app.get("/sites/{site}/days")
async def days(site: str):
    """The measurements of each sensor by day."""
    day = {"$dateToString": {"date": "$at", "format": "%Y-%m-%d"}}
    group = {
        "_id": {"sensor": "$sensor", "day": day},
        "count": {"$sum": 1},
        "lowest": {"$min": "$temperature"},
        "highest": {"$max": "$temperature"},
        "average": {"$avg": "$temperature"},
    }
    return await Measurement.find(Measurement.site == site).aggregate([{"$group": group}, {"$sort": {"_id": 1}}]).to_list()


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("PORT", "8000")))

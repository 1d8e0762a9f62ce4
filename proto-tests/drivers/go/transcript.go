package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// One document of 5 MB; 20,000 of half a kilobyte.
const many = 20_000

var (
	started   = time.Date(2023, time.October, 26, 15, 47, 3, 434_000_000, time.UTC)
	largeText = strings.Repeat("x", 5_000_000)
	padding   = strings.Repeat("y", 500)
)

// d makes a document of names and values by turns.
func d(pairs ...any) bson.D {
	document := bson.D{}
	for at := 0; at < len(pairs); at += 2 {
		document = append(document, bson.E{Key: pairs[at].(string), Value: pairs[at+1]})
	}
	return document
}

func item(number int32) bson.D {
	parity := []string{"even", "odd"}[number%2]
	return d(
		"_id", number,
		"group", number%5,
		"name", fmt.Sprintf("item %d", number),
		"price", float64(number)*0.25,
		"large", int64(number)*10_000_000_000,
		"at", started.Add(time.Duration(number)*time.Minute),
		"tags", bson.A{parity, fmt.Sprintf("g%d", number%5)},
	)
}

func show(step string, value any) {
	line := must(bson.MarshalExtJSON(d("is", value), true, false))
	fmt.Println(step, strings.TrimSuffix(strings.TrimPrefix(string(line), `{"is":`), "}"))
}

// attempt shows the value, or what an application can tell of the error.
func attempt[T any](step string, value T, err error, shown func(T) any) {
	if err != nil {
		show(step, failure(err))
		return
	}
	show(step, shown(value))
}

func same[T any](value T) any { return value }

// failure tells what is stable. What has no code came from a socket, and names a port.
func failure(err error) bson.D {
	shown := d("error", fmt.Sprintf("%T", err))
	var labelled mongo.LabeledError
	if errors.As(err, &labelled) {
		labels := bson.A{}
		for _, label := range []string{"NoWritesPerformed", "RetryableWriteError", "TransientTransactionError", "UnknownTransactionCommitResult"} {
			if labelled.HasErrorLabel(label) {
				labels = append(labels, label)
			}
		}
		shown = append(shown, bson.E{Key: "labels", Value: labels})
	}
	var command mongo.CommandError
	if errors.As(err, &command) && command.Code != 0 {
		shown = append(shown, d("code", command.Code, "codeName", command.Name, "message", command.Message)...)
	}
	var write mongo.WriteException
	if errors.As(err, &write) {
		shown = append(shown, bson.E{Key: "writeErrors", Value: writeErrors(write.WriteErrors)})
	}
	var bulk mongo.BulkWriteException
	if errors.As(err, &bulk) {
		var each mongo.WriteErrors
		for _, one := range bulk.WriteErrors {
			each = append(each, one.WriteError)
		}
		shown = append(shown, bson.E{Key: "writeErrors", Value: writeErrors(each)})
	}
	return shown
}

func writeErrors(each mongo.WriteErrors) bson.A {
	shown := bson.A{}
	for _, one := range each {
		shown = append(shown, d("index", one.Index, "code", one.Code, "message", one.Message))
	}
	return shown
}

func inserted(result *mongo.InsertOneResult) any { return result.InsertedID }

func updated(result *mongo.UpdateResult) any {
	return d("matched", result.MatchedCount, "modified", result.ModifiedCount, "upserted", result.UpsertedID)
}

func counts(result *mongo.BulkWriteResult) bson.D {
	upserted := bson.D{}
	for index, id := range result.UpsertedIDs {
		upserted = append(upserted, bson.E{Key: fmt.Sprint(index), Value: id})
	}
	slices.SortFunc(upserted, func(a, b bson.E) int { return strings.Compare(a.Key, b.Key) })
	return d(
		"inserted", result.InsertedCount,
		"matched", result.MatchedCount,
		"modified", result.ModifiedCount,
		"deleted", result.DeletedCount,
		"upserted", upserted,
	)
}

// event keeps what two runs have in common.
func event(change bson.D) bson.D {
	kept := []string{"operationType", "ns", "documentKey", "fullDocument", "updateDescription"}
	return slices.DeleteFunc(slices.Clone(change), func(field bson.E) bool { return !slices.Contains(kept, field.Key) })
}

// An application that writes to two collections at once by the driver's Client.BulkWrite (MongoDB 8.0).
//
// Each operation is executed on both collections. A line begins with the name of the collection that it is about: one is
// shaped, and the other is plain.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"
)

var collections = []string{"trades", "plain"}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func show(collection, step string, value any) {
	line := must(bson.MarshalExtJSON(bson.D{{Key: "is", Value: value}}, true, false))
	fmt.Println(collection, step, strings.TrimSuffix(strings.TrimPrefix(string(line), `{"is":`), "}"))
}

func trade(number int32) bson.D {
	started := time.Date(2023, time.October, 26, 15, 47, 3, 434_000_000, time.UTC)
	return bson.D{
		{Key: "_id", Value: number},
		{Key: "customerId", Value: number % 3},
		{Key: "quantity", Value: 10 * number},
		{Key: "date", Value: started.Add(time.Duration(number) * time.Minute)},
	}
}

// application has the client, and the database of its connection string.
type application struct {
	context  context.Context
	client   *mongo.Client
	database *mongo.Database
}

func (a application) bulk(step string, ordered bool, operations []mongo.ClientWriteModel) {
	var writes []mongo.ClientBulkWrite
	for _, operation := range operations {
		for _, collection := range collections {
			writes = append(writes, mongo.ClientBulkWrite{Database: a.database.Name(), Collection: collection, Model: operation})
		}
	}
	result, err := a.client.BulkWrite(a.context, writes, options.ClientBulkWrite().SetOrdered(ordered).SetVerboseResults(true))
	var failed mongo.ClientBulkWriteException
	if errors.As(err, &failed) {
		result = failed.PartialResult
	} else {
		check(err)
	}
	counts := []int64{result.InsertedCount, result.MatchedCount, result.ModifiedCount, result.UpsertedCount, result.DeletedCount}
	for position, collection := range collections {
		outcomes := bson.A{}
		for index := position; index < len(writes); index += len(collections) {
			outcomes = append(outcomes, outcome(index, result, failed.WriteErrors))
		}
		show(collection, step, outcomes)
		documents := bson.A{}
		found := must(a.database.Collection(collection).Find(a.context, bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}})))
		check(found.All(a.context, &documents))
		show(collection, "documents", documents)
		for _, count := range counts {
			show(collection, "count of "+step, float64(count)/float64(len(collections)))
		}
	}
}

func outcome(index int, result *mongo.ClientBulkWriteResult, failed map[int]mongo.WriteError) bson.D {
	if failure, found := failed[index]; found {
		return bson.D{{Key: "code", Value: failure.Code}}
	}
	if inserted, found := result.InsertResults[index]; found {
		return bson.D{{Key: "inserted", Value: inserted.InsertedID}}
	}
	if updated, found := result.UpdateResults[index]; found {
		return bson.D{
			{Key: "matched", Value: updated.MatchedCount},
			{Key: "modified", Value: updated.ModifiedCount},
			{Key: "upserted", Value: updated.UpsertedID},
		}
	}
	return bson.D{{Key: "deleted", Value: result.DeleteResults[index].DeletedCount}}
}

func main() {
	uri := os.Args[1]
	name := must(connstring.ParseAndValidate(uri)).Database
	client := must(mongo.Connect(options.Client().ApplyURI(uri)))
	a := application{context.Background(), client, client.Database(name)}

	id := func(number int32) bson.D { return bson.D{{Key: "_id", Value: number}} }
	change := func(operator, field string, value any) bson.D {
		return bson.D{{Key: operator, Value: bson.D{{Key: field, Value: value}}}}
	}
	var inserts []mongo.ClientWriteModel
	for number := range int32(12) {
		inserts = append(inserts, mongo.NewClientInsertOneModel().SetDocument(trade(number)))
	}
	a.bulk("insert", true, inserts)
	replaced := trade(3)
	replaced[2].Value = int32(-1)
	large := bson.D{{Key: "customerId", Value: 0}, {Key: "quantity", Value: bson.D{{Key: "$gt", Value: 60}}}}
	a.bulk("ordered", true, []mongo.ClientWriteModel{
		mongo.NewClientUpdateOneModel().SetFilter(id(1)).SetUpdate(change("$inc", "quantity", 5)),
		mongo.NewClientUpdateManyModel().SetFilter(bson.D{{Key: "customerId", Value: 2}}).SetUpdate(change("$set", "state", "open")),
		mongo.NewClientReplaceOneModel().SetFilter(id(3)).SetReplacement(replaced),
		mongo.NewClientUpdateOneModel().SetFilter(id(20)).SetUpdate(bson.D{{Key: "$setOnInsert", Value: trade(20)}}).SetUpsert(true),
		mongo.NewClientUpdateOneModel().SetFilter(id(99)).SetUpdate(change("$inc", "quantity", 1)),
		mongo.NewClientDeleteOneModel().SetFilter(id(4)),
		mongo.NewClientDeleteManyModel().SetFilter(large),
	})
	a.bulk("unordered", false, []mongo.ClientWriteModel{
		mongo.NewClientInsertOneModel().SetDocument(trade(1)),
		mongo.NewClientInsertOneModel().SetDocument(trade(30)),
		mongo.NewClientUpdateOneModel().SetFilter(id(30)).SetUpdate(change("$inc", "date", 1)),
		mongo.NewClientDeleteOneModel().SetFilter(id(5)),
	})
	check(client.Disconnect(a.context))
}

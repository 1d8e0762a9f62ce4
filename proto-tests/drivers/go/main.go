// The script that every driver runs, on the Go driver: `go run . <connection string> <database>`.
package main

import (
	"context"
	"log"
	"os"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// script is what every step needs.
type script struct {
	context  context.Context
	client   *mongo.Client
	database *mongo.Database
	items    *mongo.Collection
}

var facts = []string{"maxWireVersion", "maxBsonObjectSize", "maxMessageSizeBytes", "maxWriteBatchSize", "logicalSessionTimeoutMinutes", "readOnly"}

func main() {
	uri, name := os.Args[1], os.Args[2]
	client := must(mongo.Connect(options.Client().ApplyURI(uri).SetAppName(name)))
	database := client.Database(name)
	s := script{context.Background(), client, database, database.Collection("items")}
	check(database.Drop(s.context))
	s.run()
	check(database.Drop(s.context))
	check(client.Disconnect(s.context))
}

func (s script) run() {
	hello := s.admin("hello")
	server := bson.D{{Key: "version", Value: s.admin("buildInfo")["version"]}}
	for _, fact := range facts {
		server = append(server, bson.E{Key: fact, Value: hello[fact]})
	}
	show("server", server)
	show("ping", s.admin("ping")["ok"])
	s.writes()
	s.bulkWrites()
	s.updates()
	s.reads()
	s.aggregates()
	s.administration()
	s.refusals()
	s.large()
	s.unacknowledged()
	s.sessions()
	if hello["setName"] != nil || hello["msg"] == "isdbgrid" {
		s.transactions()
		s.withTransaction()
		s.conflict()
		s.concerns()
		s.snapshot()
		s.changes()
	} else {
		s.onStandalone()
	}
}

func (s script) admin(command string) bson.M {
	var reply bson.M
	check(s.client.Database("admin").RunCommand(s.context, bson.D{{Key: command, Value: 1}}).Decode(&reply))
	return reply
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

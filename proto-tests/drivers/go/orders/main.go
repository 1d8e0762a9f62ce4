// A shop on the Go driver, which prints all it sees: `go run ./orders <connection string>`.
//
// The connection string names a database, which is empty, on a replica set or a mongos. The shop must not be able to tell whom it talks to.
package main

import (
	"context"
	"log"
	"os"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/mongo/driver/connstring"
)

func main() {
	uri, err := connstring.ParseAndValidate(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	client, err := mongo.Connect(options.Client().ApplyURI(os.Args[1]))
	if err != nil {
		log.Fatal(err)
	}
	database := client.Database(uri.Database)
	s := &shop{context: context.Background(), client: client, customers: database.Collection("customers"), orders: database.Collection("orders")}
	for _, part := range []func(){s.open, s.place, s.browse, s.change, s.transact, s.expire, s.remove} {
		part()
	}
	if err := client.Disconnect(s.context); err != nil {
		log.Fatal(err)
	}
}

package main

import (
	"errors"
	"fmt"
	"regexp"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// made matches ids that the driver made by its clock.
var made = regexp.MustCompile(`\b6[0-9a-f]{23}\b`)

// step prints what the shop sees, or what it can tell of the error.
func step[T any](name string, run func() (T, error)) {
	value, err := run()
	shown := bson.D{{Key: "step", Value: name}}
	if err != nil {
		shown = append(shown, bson.E{Key: "failed", Value: failure(err)})
	} else {
		shown = append(shown, bson.E{Key: "saw", Value: value})
	}
	line, err := bson.MarshalExtJSON(shown, true, false)
	if err != nil {
		panic(err)
	}
	fmt.Println(made.ReplaceAllString(string(line), "made"))
}

func failure(err error) bson.D {
	shown := bson.D{
		{Key: "error", Value: fmt.Sprintf("%T", err)},
		{Key: "message", Value: err.Error()},
		{Key: "isDuplicate", Value: mongo.IsDuplicateKeyError(err)},
	}
	var bulk mongo.BulkWriteException
	if errors.As(err, &bulk) {
		for _, one := range bulk.WriteErrors {
			shown = append(shown, bson.E{Key: "writeError", Value: bson.A{one.Index, one.Code, one.Message}})
		}
	}
	var server mongo.ServerError
	if errors.As(err, &server) {
		shown = append(shown, bson.E{Key: "isTransient", Value: server.HasErrorLabel("TransientTransactionError")})
	}
	return shown
}

package main

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

type customer struct {
	ID    bson.ObjectID `bson:"_id,omitempty"`
	Email string        `bson:"email"`
	Name  string        `bson:"name"`
}

type line struct {
	SKU      string  `bson:"sku"`
	Quantity int     `bson:"quantity"`
	Price    float64 `bson:"price"`
}

type order struct {
	ID       bson.ObjectID `bson:"_id,omitempty"`
	Number   string        `bson:"number"`
	Customer bson.ObjectID `bson:"customer"`
	PlacedAt time.Time     `bson:"placedAt"`
	Status   string        `bson:"status"`
	Lines    []line        `bson:"lines"`
	Note     string        `bson:"note,omitempty"`
	Version  int           `bson:"version"`
	// A cart is given up when this has passed.
	HeldUntil *time.Time `bson:"heldUntil,omitempty"`
}

// shop has the collections, and two customers.
type shop struct {
	context   context.Context
	client    *mongo.Client
	customers *mongo.Collection
	orders    *mongo.Collection
	ada, bob  customer
}

// ensureIndexes is what the shop does whenever it starts.
func (s *shop) ensureIndexes() ([]string, error) {
	byEmail := mongo.IndexModel{Keys: bson.D{{Key: "email", Value: 1}}, Options: options.Index().SetUnique(true)}
	if _, err := s.customers.Indexes().CreateOne(s.context, byEmail); err != nil {
		return nil, err
	}
	return s.orders.Indexes().CreateMany(s.context, []mongo.IndexModel{
		{Keys: bson.D{{Key: "number", Value: 1}}, Options: options.Index().SetUnique(true)},
		{Keys: bson.D{{Key: "customer", Value: 1}, {Key: "placedAt", Value: -1}}},
		{Keys: bson.D{{Key: "status", Value: 1}}, Options: options.Index().SetName("by_status")},
		{Keys: bson.D{{Key: "lines.sku", Value: 1}}},
		{Keys: bson.D{{Key: "heldUntil", Value: 1}}, Options: options.Index().SetExpireAfterSeconds(0)},
	})
}

func numbered(number int, of customer) order {
	lines := []line{}
	for at := range 1 + number%3 {
		lines = append(lines, line{fmt.Sprintf("S%d", (number+at)%7), 1 + at, 2.5 * float64(1+number%4)})
	}
	placedAt := time.Date(2026, time.January, 1+number, 12, 0, 0, 0, time.UTC)
	return order{Number: named(number), Customer: of.ID, PlacedAt: placedAt, Status: "placed", Lines: lines}
}

func named(number int) string { return fmt.Sprintf("A-%04d", number) }

func cart(number int, of customer, year int) order {
	cart := numbered(number, of)
	heldUntil := time.Date(year, time.January, 1, 0, 0, 0, 0, time.UTC)
	cart.Status, cart.HeldUntil = "cart", &heldUntil
	return cart
}

func (s *shop) find(filter any, opts ...options.Lister[options.FindOptions]) ([]order, error) {
	cursor, err := s.orders.Find(s.context, filter, opts...)
	if err != nil {
		return nil, err
	}
	found := []order{}
	return found, cursor.All(s.context, &found)
}

func (s *shop) byNumber(number int) (found order, err error) {
	err = s.orders.FindOne(s.context, bson.D{{Key: "number", Value: named(number)}}).Decode(&found)
	return found, err
}

// save replaces an order if it has the version that was read.
func (s *shop) save(changed order) (order, error) {
	read := bson.D{{Key: "_id", Value: changed.ID}, {Key: "version", Value: changed.Version}}
	changed.Version++
	result, err := s.orders.ReplaceOne(s.context, read, changed)
	if err == nil && result.MatchedCount == 0 {
		err = fmt.Errorf("another has saved %s", changed.Number)
	}
	return changed, err
}

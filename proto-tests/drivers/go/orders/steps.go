package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const expiryLimit = 90 * time.Second

// m is a filter, an update or a stage. Those of several fields whose order counts are a bson.D.
type m = bson.M

func (s *shop) all() ([]order, error) {
	return s.find(m{}, options.Find().SetSort(m{"number": 1}))
}

func (s *shop) insert(of order) func() (any, error) {
	return func() (any, error) {
		result, err := s.orders.InsertOne(s.context, of)
		if err != nil {
			return nil, err
		}
		return result.InsertedID, nil
	}
}

func (s *shop) insertMany(ordered bool, of ...order) func() (int, error) {
	return func() (int, error) {
		result, err := s.orders.InsertMany(s.context, of, options.InsertMany().SetOrdered(ordered))
		if result == nil {
			return 0, err
		}
		return len(result.InsertedIDs), err
	}
}

func (s *shop) open() {
	step("ensureIndexes", s.ensureIndexes)
	step("ensureIndexes again", s.ensureIndexes)
	step("indexes", func() ([]mongo.IndexSpecification, error) { return s.orders.Indexes().ListSpecifications(s.context) })
	s.ada = customer{ID: bson.NewObjectID(), Email: "ada@example.com", Name: "Ada"}
	s.bob = customer{ID: bson.NewObjectID(), Email: "bob@example.com", Name: "Bob"}
	for _, each := range []customer{s.ada, s.bob, {Email: "ada@example.com", Name: "Adele"}} {
		step("customer "+each.Name, func() (*mongo.InsertOneResult, error) { return s.customers.InsertOne(s.context, each) })
	}
}

func (s *shop) place() {
	step("insert", s.insert(numbered(0, s.ada)))
	step("insert for the other", s.insert(numbered(1, s.bob)))
	rest := []order{}
	for number := 2; number < 45; number++ {
		rest = append(rest, numbered(number, []customer{s.bob, s.ada, s.ada}[number%3]))
	}
	step("insert many", s.insertMany(true, rest...))
	step("number of the same customer", s.insert(numbered(0, s.ada)))
	step("number of another customer", s.insert(numbered(0, s.bob)))
	step("numbers of others", s.insertMany(true, numbered(46, s.ada), numbered(1, s.ada), numbered(47, s.ada)))
	step("numbers of others, unordered", s.insertMany(false, numbered(48, s.ada), numbered(2, s.ada), numbered(49, s.bob)))
	step("a number twice", s.insertMany(true, numbered(51, s.ada), numbered(51, s.bob)))
	step("placed", s.all)
}

func (s *shop) browse() {
	ofAda := m{"customer": s.ada.ID}
	newest := bson.D{{Key: "placedAt", Value: -1}}
	for page := range int64(4) {
		step("page", func() ([]order, error) {
			return s.find(ofAda, options.Find().SetSort(newest).SetSkip(10*page).SetLimit(10))
		})
	}
	step("by number", func() (order, error) { return s.byNumber(7) })
	step("by number of nobody", func() (order, error) { return s.byNumber(700) })
	step("by SKU", func() ([]order, error) {
		element := m{"$elemMatch": bson.D{{Key: "sku", Value: "S3"}, {Key: "quantity", Value: m{"$gte": 2}}}}
		return s.find(m{"customer": s.ada.ID, "lines": element}, options.Find().SetSort(newest))
	})
	step("in a month", func() ([]order, error) {
		month := bson.D{{Key: "$gte", Value: time.Date(2026, 1, 20, 0, 0, 0, 0, time.UTC)}, {Key: "$lt", Value: time.Date(2026, 2, 5, 0, 0, 0, 0, time.UTC)}}
		return s.find(m{"customer": s.ada.ID, "placedAt": month}, options.Find().SetSort(newest).SetProjection(m{"number": 1, "placedAt": 1}))
	})
	step("count", func() (int64, error) {
		return s.orders.CountDocuments(s.context, m{"customer": s.ada.ID, "status": "placed"})
	})
	step("estimate", func() (int64, error) { return s.orders.EstimatedDocumentCount(s.context) })
	step("distinct", func() ([]string, error) {
		var skus []string
		err := s.orders.Distinct(s.context, "lines.sku", m{"customer": s.bob.ID}).Decode(&skus)
		slices.Sort(skus)
		return skus, err
	})
	step("cursor", s.numbers)
	step("sales", s.sales)
}

// numbers reads a cursor of several batches.
func (s *shop) numbers() ([]string, error) {
	cursor, err := s.orders.Find(s.context, m{"status": "placed"}, options.Find().SetSort(m{"number": 1}).SetBatchSize(6))
	if err != nil {
		return nil, err
	}
	defer cursor.Close(s.context)
	numbers := []string{}
	for cursor.Next(s.context) {
		var each order
		if err := cursor.Decode(&each); err != nil {
			return nil, err
		}
		numbers = append(numbers, each.Number)
	}
	return numbers, cursor.Err()
}

func (s *shop) sales() ([]bson.D, error) {
	cursor, err := s.orders.Aggregate(s.context, mongo.Pipeline{
		{{Key: "$unwind", Value: "$lines"}},
		{{Key: "$group", Value: bson.D{
			{Key: "_id", Value: "$customer"},
			{Key: "sold", Value: m{"$sum": m{"$multiply": bson.A{"$lines.quantity", "$lines.price"}}}},
			{Key: "numbers", Value: m{"$addToSet": "$number"}},
		}}},
		{{Key: "$lookup", Value: m{"from": "customers", "localField": "_id", "foreignField": "_id", "as": "customer"}}},
		{{Key: "$project", Value: bson.D{
			{Key: "_id", Value: 0},
			{Key: "name", Value: m{"$first": "$customer.name"}},
			{Key: "sold", Value: 1},
			{Key: "orders", Value: m{"$size": "$numbers"}},
		}}},
		{{Key: "$sort", Value: m{"name": 1}}},
	})
	if err != nil {
		return nil, err
	}
	sales := []bson.D{}
	return sales, cursor.All(s.context, &sales)
}

func (s *shop) update(filter, update any, opts ...options.Lister[options.UpdateOneOptions]) func() (*mongo.UpdateResult, error) {
	return func() (*mongo.UpdateResult, error) { return s.orders.UpdateOne(s.context, filter, update, opts...) }
}

func (s *shop) change() {
	step("save", func() (order, error) { return s.changed(3, func(of *order) { of.Status = "paid" }) })
	step("save what another has saved", func() (order, error) {
		mine, err := s.byNumber(4)
		if err != nil {
			return mine, err
		}
		if _, err := s.changed(4, func(of *order) { of.Lines[0].Quantity = 9 }); err != nil {
			return mine, err
		}
		return s.save(mine)
	})
	step("save a number that another has", func() (order, error) { return s.changed(5, func(of *order) { of.Number = named(6) }) })
	step("save a new number", func() (order, error) { return s.changed(5, func(of *order) { of.Number = "B-0005" }) })
	step("the old number again", s.insert(numbered(5, s.bob)))
	step("to another customer", func() (order, error) { return s.changed(15, func(of *order) { of.Customer = s.bob.ID }) })
	step("an element", s.update(m{"number": named(11), "lines.sku": "S4"}, m{"$set": m{"lines.$.quantity": 7}}))
	step("array filters", s.update(m{"number": named(14)}, m{"$inc": m{"lines.$[cheap].price": 1}},
		options.UpdateOne().SetArrayFilters([]any{m{"cheap.price": m{"$lt": 50}}})))
	step("push", s.update(m{"number": named(12)}, m{"$push": m{"lines": line{"S9", 1, 1}}}))
	step("pull", s.update(m{"number": named(12)}, m{"$pull": m{"lines": m{"quantity": m{"$gt": 1}}}}))
	step("a number that another has", s.update(m{"number": named(9)}, m{"$set": m{"number": named(10)}}))
	step("update many", func() (*mongo.UpdateResult, error) {
		return s.orders.UpdateMany(s.context, m{"customer": s.bob.ID, "status": "placed"}, m{"$set": m{"status": "paid"}})
	})
	step("update many by a pipeline", func() (*mongo.UpdateResult, error) {
		note := m{"$set": m{"note": m{"$concat": bson.A{"$number", "!"}}}}
		return s.orders.UpdateMany(s.context, m{"status": "paid"}, mongo.Pipeline{{{Key: "$set", Value: note["$set"]}}})
	})
	upserted := bson.D{{Key: "customer", Value: s.bob.ID}, {Key: "placedAt", Value: time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)}}
	upsert := bson.D{{Key: "$set", Value: m{"status": "paid"}}, {Key: "$setOnInsert", Value: upserted}}
	for range 2 {
		step("upsert", s.update(m{"number": "C-0001"}, upsert, options.UpdateOne().SetUpsert(true)))
	}
	step("find and update", func() (found order, err error) {
		opts := options.FindOneAndUpdate().SetSort(m{"placedAt": 1}).SetReturnDocument(options.After)
		update := bson.D{{Key: "$set", Value: m{"status": "sent"}}, {Key: "$inc", Value: m{"version": 1}}}
		err = s.orders.FindOneAndUpdate(s.context, m{"customer": s.ada.ID, "status": "placed"}, update, opts).Decode(&found)
		return found, err
	})
	step("bulk write", s.bulk(true, 60))
	step("bulk write of numbers that others have", s.bulk(false, 60))
	step("changed", s.all)
}

func (s *shop) changed(number int, change func(*order)) (order, error) {
	found, err := s.byNumber(number)
	if err != nil {
		return found, err
	}
	change(&found)
	return s.save(found)
}

func (s *shop) bulk(ordered bool, number int) func() (bson.D, error) {
	models := []mongo.WriteModel{
		mongo.NewInsertOneModel().SetDocument(numbered(number, s.ada)),
		mongo.NewUpdateOneModel().SetFilter(m{"number": named(16)}).SetUpdate(m{"$set": m{"status": "sent"}}),
		mongo.NewUpdateManyModel().SetFilter(m{"lines.sku": "S2"}).SetUpdate(m{"$inc": m{"version": 1}}),
		mongo.NewReplaceOneModel().SetFilter(m{"number": named(18)}).SetReplacement(numbered(18, s.bob)),
		mongo.NewDeleteOneModel().SetFilter(m{"number": named(17)}),
	}
	return func() (bson.D, error) {
		result, err := s.orders.BulkWrite(s.context, models, options.BulkWrite().SetOrdered(ordered))
		if result == nil {
			return nil, err
		}
		counts := bson.D{
			{Key: "inserted", Value: result.InsertedCount},
			{Key: "matched", Value: result.MatchedCount},
			{Key: "modified", Value: result.ModifiedCount},
			{Key: "deleted", Value: result.DeletedCount},
		}
		return counts, err
	}
}

func (s *shop) transaction(body func(context.Context) (any, error)) func() (any, error) {
	return func() (any, error) {
		session, err := s.client.StartSession()
		if err != nil {
			return nil, err
		}
		defer session.EndSession(s.context)
		return session.WithTransaction(s.context, body)
	}
}

func (s *shop) transact() {
	step("transaction", s.transaction(func(within context.Context) (any, error) {
		if _, err := s.orders.InsertOne(within, numbered(70, s.ada)); err != nil {
			return nil, err
		}
		if _, err := s.orders.UpdateOne(within, m{"number": named(20)}, m{"$set": m{"status": "cancelled"}}); err != nil {
			return nil, err
		}
		return s.orders.CountDocuments(within, m{"customer": s.ada.ID})
	}))
	step("transaction that fails", s.transaction(func(within context.Context) (any, error) {
		if _, err := s.orders.DeleteMany(within, m{"customer": s.bob.ID}); err != nil {
			return nil, err
		}
		return nil, errors.New("out of stock")
	}))
	step("transaction with a number that another has", s.transaction(func(within context.Context) (any, error) {
		if _, err := s.orders.InsertOne(within, numbered(71, s.bob)); err != nil {
			return nil, err
		}
		return s.orders.InsertOne(within, numbered(70, s.bob))
	}))
	step("transacted", s.all)
}

func (s *shop) expire() {
	step("carts", s.insertMany(true, cart(80, s.ada, 2026), cart(81, s.bob, 2026), cart(82, s.ada, 2026)))
	step("a cart that is held", s.insert(cart(83, s.ada, 2099)))
	step("carts are given up", func() ([]order, error) {
		deadline := time.Now().Add(expiryLimit)
		for {
			carts, err := s.find(m{"status": "cart"})
			if err != nil || len(carts) < 2 || time.Now().After(deadline) {
				return carts, err
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
	step("a given up number again", s.insert(numbered(80, s.ada)))
}

func (s *shop) remove() {
	step("delete one", func() (*mongo.DeleteResult, error) { return s.orders.DeleteOne(s.context, m{"number": named(22)}) })
	step("its number again", s.insert(numbered(22, s.bob)))
	step("find and delete", func() (found order, err error) {
		opts := options.FindOneAndDelete().SetSort(m{"placedAt": -1})
		err = s.orders.FindOneAndDelete(s.context, m{"customer": s.ada.ID}, opts).Decode(&found)
		return found, err
	})
	step("delete many", func() (*mongo.DeleteResult, error) { return s.orders.DeleteMany(s.context, m{"status": "sent"}) })
	step("left", s.all)
}

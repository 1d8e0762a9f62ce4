package main

import (
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

func (s script) writes() {
	show("insertOne", must(s.items.InsertOne(s.context, item(0))).InsertedID)
	var items []bson.D
	for number := range int32(99) {
		items = append(items, item(number+1))
	}
	show("insertMany", must(s.items.InsertMany(s.context, items)).InsertedIDs)
	result, err := s.items.InsertOne(s.context, item(0))
	attempt("duplicate", result, err, inserted)
}

func (s script) bulkWrites() {
	bulk := d("$set", d("bulk", true))
	mixed := []mongo.WriteModel{
		mongo.NewInsertOneModel().SetDocument(item(200)),
		mongo.NewUpdateOneModel().SetFilter(d("_id", 1)).SetUpdate(bulk),
		mongo.NewReplaceOneModel().SetFilter(d("_id", 2)).SetReplacement(append(item(2), bson.E{Key: "bulk", Value: true})),
		mongo.NewUpdateOneModel().SetFilter(d("_id", 210)).SetUpdate(bulk).SetUpsert(true),
		mongo.NewDeleteOneModel().SetFilter(d("_id", 3)),
		mongo.NewInsertOneModel().SetDocument(item(0)),
		mongo.NewInsertOneModel().SetDocument(item(201)),
	}
	s.bulk("bulkWrite ordered", mixed, true)
	s.bulk("bulkWrite unordered", mixed, false)
	s.bulk("bulkWrite", []mongo.WriteModel{
		mongo.NewInsertOneModel().SetDocument(item(202)),
		mongo.NewDeleteOneModel().SetFilter(d("_id", 202)),
		mongo.NewUpdateOneModel().SetFilter(d("_id", 4)).SetUpdate(d("$inc", d("group", 10))),
	}, true)
}

func (s script) bulk(step string, models []mongo.WriteModel, ordered bool) {
	result, err := s.items.BulkWrite(s.context, models, options.BulkWrite().SetOrdered(ordered))
	if err == nil {
		show(step, counts(result))
		return
	}
	show(step, append(failure(err), counts(result)...))
}

func (s script) updates() {
	c := s.context
	show("updateOne", updated(must(s.items.UpdateOne(c, d("_id", 5), d("$set", d("name", "five"), "$push", d("tags", "new"))))))
	raised := bson.A{d("$set", d("price", d("$add", bson.A{"$price", 1})))}
	show("updateMany", updated(must(s.items.UpdateMany(c, d("group", 1), raised))))
	show("replaceOne", updated(must(s.items.ReplaceOne(c, d("_id", 6), d("group", 6)))))
	upsert := options.UpdateOne().SetUpsert(true)
	show("upsert", updated(must(s.items.UpdateOne(c, d("_id", 220), d("$set", d("group", 7)), upsert))))
	after := options.FindOneAndUpdate().SetReturnDocument(options.After)
	show("findOneAndUpdate", one(s.items.FindOneAndUpdate(c, d("_id", 7), d("$inc", d("group", 1)), after)))
	untagged := options.FindOneAndReplace().SetProjection(d("tags", 0))
	show("findOneAndReplace", one(s.items.FindOneAndReplace(c, d("_id", 8), d("group", 8), untagged)))
	last := options.FindOneAndDelete().SetSort(d("_id", -1))
	show("findOneAndDelete", one(s.items.FindOneAndDelete(c, d("group", 4), last)))
	show("deleteOne", must(s.items.DeleteOne(c, d("_id", 220))).DeletedCount)
	show("deleteMany", must(s.items.DeleteMany(c, d("_id", d("$gte", 200)))).DeletedCount)
}

func one(result *mongo.SingleResult) bson.D {
	var found bson.D
	check(result.Decode(&found))
	return found
}

func (s script) all(cursor *mongo.Cursor, err error) []bson.D {
	check(err)
	found := []bson.D{}
	check(cursor.All(s.context, &found))
	return found
}

func ids(documents []bson.D) bson.A {
	found := bson.A{}
	for _, document := range documents {
		found = append(found, document[0].Value)
	}
	return found
}

func (s script) reads() {
	byID := options.Find().SetSort(d("_id", 1))
	page := options.Find().SetProjection(d("name", 1, "at", 1)).SetSort(d("price", -1)).SetSkip(5).SetLimit(4)
	show("find", s.all(s.items.Find(s.context, d("group", d("$lt", 3)), page)))
	show("findOne", s.items.FindOne(s.context, d("_id", "none")).Err().Error())
	show("batches", ids(s.all(s.items.Find(s.context, d(), byID, options.Find().SetBatchSize(7)))))
	cursor := must(s.items.Find(s.context, d(), byID, options.Find().SetBatchSize(5)))
	first := bson.A{}
	for len(first) < 7 && cursor.Next(s.context) {
		first = append(first, cursor.Current.Lookup("_id"))
	}
	check(cursor.Close(s.context))
	show("closed early", first)
	numeric := options.Find().SetSort(d("name", 1)).SetCollation(&options.Collation{Locale: "en", NumericOrdering: true})
	show("collation", ids(s.all(s.items.Find(s.context, d("_id", d("$lt", 30)), numeric))))
}

func (s script) aggregates() {
	byGroup := bson.A{
		d("$group", d("_id", "$group", "price", d("$sum", "$price"), "count", d("$sum", 1))),
		d("$sort", d("_id", 1)),
	}
	show("aggregate", s.all(s.items.Aggregate(s.context, byGroup)))
	tagged := bson.A{d("$unwind", "$tags"), d("$sort", d("_id", 1, "tags", 1)), d("$project", d("tags", 1))}
	show("aggregate in batches", s.all(s.items.Aggregate(s.context, tagged, options.Aggregate().SetBatchSize(7))))
	var tags []string
	check(s.items.Distinct(s.context, "tags", d()).Decode(&tags))
	slices.Sort(tags)
	show("distinct", tags)
	show("countDocuments", must(s.items.CountDocuments(s.context, d("group", 2))))
	show("estimatedDocumentCount", must(s.items.EstimatedDocumentCount(s.context)))
}

func (s script) administration() {
	indexes := s.items.Indexes()
	named := options.Index().SetName("page")
	show("createIndex", must(indexes.CreateOne(s.context, mongo.IndexModel{Keys: d("group", 1, "at", -1), Options: named})))
	name, err := indexes.CreateOne(s.context, mongo.IndexModel{Keys: d("group", 1), Options: named})
	attempt("createIndex again", name, err, same)
	show("listIndexes", s.all(indexes.List(s.context)))
	show("hint", ids(s.all(s.items.Find(s.context, d("group", 2), options.Find().SetHint("page")))))
	check(indexes.DropOne(s.context, "page"))
	show("dropIndex", len(s.all(indexes.List(s.context))))
	names := must(s.database.ListCollectionNames(s.context, d()))
	slices.Sort(names)
	show("listCollections", names)
	show("listDatabases", must(s.client.ListDatabaseNames(s.context, d("name", s.database.Name()))))
}

func (s script) refusals() {
	reply, err := s.database.RunCommand(s.context, d("noSuchCommand", 1)).Raw()
	attempt("no such command", reply, err, same)
	reply, err = s.items.FindOne(s.context, d("group", d("$nothing", 1))).Raw()
	attempt("bad filter", reply, err, same)
	positive := options.CreateCollection().SetValidator(d("size", d("$gt", 0)))
	attempt("create", true, s.database.CreateCollection(s.context, "checked", positive), same)
	capped := options.CreateCollection().SetCapped(true).SetSizeInBytes(4096)
	attempt("create again", true, s.database.CreateCollection(s.context, "checked", capped), same)
	result, err := s.database.Collection("checked").InsertOne(s.context, d("_id", 1, "size", 0))
	attempt("validator", result, err, inserted)
}

func (s script) large() {
	large, many20k := s.database.Collection("large"), s.database.Collection("many")
	show("large document", must(large.InsertOne(s.context, d("_id", 1, "text", largeText))).InsertedID)
	found := must(large.FindOne(s.context, d("_id", 1)).Raw())
	show("large document read", found.Lookup("text").StringValue() == largeText)
	documents := make([]bson.D, many)
	for number := range documents {
		documents[number] = d("_id", int32(number), "text", padding)
	}
	show("large bulk", len(must(many20k.InsertMany(s.context, documents)).InsertedIDs))
	sum := int64(0)
	for _, id := range ids(s.all(many20k.Find(s.context, d()))) {
		sum += int64(id.(int32))
	}
	show("large bulk read", sum)
	show("large bulk deleted", must(many20k.DeleteMany(s.context, d())).DeletedCount)
}

func (s script) unacknowledged() {
	quiet := s.database.Collection("quiet", options.Collection().SetWriteConcern(writeconcern.Unacknowledged()))
	first := must(quiet.InsertOne(s.context, d("_id", 1)))
	second := must(quiet.InsertOne(s.context, d("_id", 1)))
	show("unacknowledged", bson.A{first.Acknowledged, second.Acknowledged})
	var found bson.D
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if err := s.database.Collection("quiet").FindOne(s.context, d()).Decode(&found); err == nil {
			break
		}
	}
	show("unacknowledged read", found)
}

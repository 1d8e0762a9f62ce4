package main

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// failOnce: the server closes the connection on the next such command of this application.
func (s script) failOnce(command string) {
	data := d("failCommands", bson.A{command}, "closeConnection", true, "appName", s.database.Name())
	failPoint := d("configureFailPoint", "failCommand", "mode", d("times", 1), "data", data)
	reply, err := s.client.Database("admin").RunCommand(s.context, failPoint).Raw()
	attempt("fail "+command, reply, err, func(reply bson.Raw) any { return reply.Lookup("ok") })
}

func (s script) sessions() {
	said := s.database.Collection("said")
	session := must(s.client.StartSession(options.Session().SetCausalConsistency(true)))
	inside := mongo.NewSessionContext(s.context, session)
	must(said.InsertOne(inside, d("_id", 1)))
	show("session", bson.A{one(said.FindOne(inside, d())), session.OperationTime() != nil})
	session.EndSession(s.context)
	s.failOnce("find")
	reply, err := s.items.FindOne(s.context, d("_id", 9)).Raw()
	attempt("retried read", reply, err, same)
	s.failOnce("insert")
	result, err := said.InsertOne(s.context, d("_id", 2))
	attempt("retried write", result, err, inserted)
	show("retried write read", must(said.CountDocuments(s.context, d())))
}

func (s script) name(ctx context.Context, id int) any {
	return must(s.items.FindOne(ctx, d("_id", id)).Raw()).Lookup("name")
}

func (s script) transactions() {
	added := d("_id", d("$gte", 300))
	count := func() int64 { return must(s.items.CountDocuments(s.context, added)) }
	session := must(s.client.StartSession())
	defer session.EndSession(s.context)
	inside := mongo.NewSessionContext(s.context, session)
	check(session.StartTransaction())
	must(s.items.InsertMany(inside, []bson.D{item(300), item(301)}))
	must(s.items.UpdateOne(inside, d("_id", 10), d("$set", d("name", "ten"))))
	show("transaction", bson.A{len(s.all(s.items.Find(inside, added, options.Find().SetBatchSize(1)))), count()})
	check(session.CommitTransaction(s.context))
	show("committed", bson.A{count(), s.name(s.context, 10)})
	check(session.StartTransaction())
	show("aborted", must(s.items.DeleteMany(inside, added)).DeletedCount)
	check(session.AbortTransaction(s.context))
	show("after abort", count())
	check(session.StartTransaction())
	result, err := s.items.InsertOne(inside, item(300))
	attempt("duplicate in transaction", result, err, inserted)
	check(session.AbortTransaction(s.context))
}

func (s script) withTransaction() {
	session := must(s.client.StartSession())
	defer session.EndSession(s.context)
	s.failOnce("commitTransaction")
	group := func(ctx context.Context) (any, error) {
		found, err := s.items.FindOne(ctx, d("_id", 11)).Raw()
		return found.Lookup("group"), err
	}
	transferred, err := session.WithTransaction(s.context, func(inside context.Context) (any, error) {
		if _, err := s.items.UpdateOne(inside, d("_id", 11), d("$inc", d("group", 100))); err != nil {
			return nil, err
		}
		return group(inside)
	})
	attempt("withTransaction", transferred, err, same)
	show("withTransaction read", must(group(s.context)))
}

func (s script) conflict() {
	first, second := must(s.client.StartSession()), must(s.client.StartSession())
	defer first.EndSession(s.context)
	defer second.EndSession(s.context)
	check(first.StartTransaction())
	check(second.StartTransaction())
	rename := func(session *mongo.Session, name string) (*mongo.UpdateResult, error) {
		return s.items.UpdateOne(mongo.NewSessionContext(s.context, session), d("_id", 12), d("$set", d("name", name)))
	}
	must(rename(first, "first"))
	result, err := rename(second, "second")
	attempt("write conflict", result, err, updated)
	check(second.AbortTransaction(s.context))
	check(first.CommitTransaction(s.context))
	show("write conflict read", s.name(s.context, 12))
}

func (s script) concerns() {
	session := must(s.client.StartSession(options.Session().SetCausalConsistency(true)))
	defer session.EndSession(s.context)
	inside := mongo.NewSessionContext(s.context, session)
	safe := s.items.Clone(options.Collection().SetReadConcern(readconcern.Majority()).SetWriteConcern(writeconcern.Majority()))
	show("majority", updated(must(safe.UpdateOne(inside, d("_id", 13), d("$set", d("name", "thirteen"))))))
	anywhere := safe.Clone(options.Collection().SetReadPreference(readpref.SecondaryPreferred()))
	show("secondaryPreferred", must(anywhere.FindOne(inside, d("_id", 13)).Raw()).Lookup("name"))
	show("secondaryPreferred batches", len(s.all(anywhere.Find(inside, d(), options.Find().SetBatchSize(7)))))
	linearizable := s.items.Clone(options.Collection().SetReadConcern(readconcern.Linearizable()))
	show("linearizable", must(linearizable.FindOne(s.context, d("_id", 13)).Raw()).Lookup("name"))
}

func (s script) snapshot() {
	session := must(s.client.StartSession(options.Session().SetSnapshot(true)))
	defer session.EndSession(s.context)
	inside := mongo.NewSessionContext(s.context, session)
	safe := s.items.Clone(options.Collection().SetWriteConcern(writeconcern.Majority()))
	before := must(s.items.CountDocuments(inside, d()))
	must(safe.InsertOne(s.context, item(310)))
	show("snapshot", must(s.items.CountDocuments(inside, d()))-before)
}

func (s script) changes() {
	watched := s.database.Collection("watched")
	lookup := options.ChangeStream().SetFullDocument(options.UpdateLookup).SetMaxAwaitTime(500 * time.Millisecond)
	stream := must(watched.Watch(s.context, mongo.Pipeline{}, lookup))
	show("change stream", stream.TryNext(s.context))
	must(watched.InsertOne(s.context, item(1)))
	must(watched.UpdateOne(s.context, d("_id", 1), d("$set", d("name", "one"), "$unset", d("price", 1))))
	must(watched.InsertOne(s.context, d("_id", 2)))
	must(watched.DeleteOne(s.context, d("_id", 2)))
	seen := bson.A{}
	var token bson.Raw
	for len(seen) < 4 {
		change := next(s.context, stream)
		if seen = append(seen, event(change)); token == nil {
			token = stream.ResumeToken()
		}
	}
	show("changes", seen)
	check(stream.Close(s.context))
	resumed := must(watched.Watch(s.context, mongo.Pipeline{}, options.ChangeStream().SetResumeAfter(token)))
	show("resumed", event(next(s.context, resumed)))
	check(resumed.Close(s.context))
}

func next(ctx context.Context, stream *mongo.ChangeStream) bson.D {
	if !stream.Next(ctx) {
		check(stream.Err())
	}
	var change bson.D
	check(stream.Decode(&change))
	return change
}

func (s script) onStandalone() {
	session := must(s.client.StartSession())
	defer session.EndSession(s.context)
	check(session.StartTransaction())
	result, err := s.items.InsertOne(mongo.NewSessionContext(s.context, session), item(300))
	attempt("transaction", result, err, inserted)
	_, err = s.database.Collection("watched").Watch(s.context, mongo.Pipeline{})
	attempt("change stream", true, err, same)
}

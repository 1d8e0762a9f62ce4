package script;

import static script.Transcript.attempt;
import static script.Transcript.counts;
import static script.Transcript.d;
import static script.Transcript.inserted;
import static script.Transcript.item;
import static script.Transcript.show;
import static script.Transcript.updated;

import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.BulkWriteOptions;
import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.FindOneAndDeleteOptions;
import com.mongodb.client.model.FindOneAndReplaceOptions;
import com.mongodb.client.model.FindOneAndUpdateOptions;
import com.mongodb.client.model.InsertOneModel;
import com.mongodb.client.model.ReplaceOneModel;
import com.mongodb.client.model.ReturnDocument;
import com.mongodb.client.model.UpdateOneModel;
import com.mongodb.client.model.UpdateOptions;
import com.mongodb.client.model.WriteModel;
import java.util.List;
import java.util.stream.IntStream;
import org.bson.Document;

/** Writes of all kinds on one collection. */
record Writes(MongoCollection<Document> items) {
    void run() {
        show("insertOne", inserted(items.insertOne(item(0))));
        show("insertMany", List.copyOf(items.insertMany(IntStream.range(1, 100).mapToObj(Transcript::item).toList()).getInsertedIds().values()));
        attempt("duplicate", () -> inserted(items.insertOne(item(0))));
        bulkWrites();
        updates();
    }

    private void bulkWrites() {
        Document bulk = d("$set", d("bulk", true));
        List<WriteModel<Document>> mixed = List.of(
                new InsertOneModel<>(item(200)),
                new UpdateOneModel<>(d("_id", 1), bulk),
                new ReplaceOneModel<>(d("_id", 2), item(2).append("bulk", true)),
                new UpdateOneModel<>(d("_id", 210), bulk, new UpdateOptions().upsert(true)),
                new DeleteOneModel<>(d("_id", 3)),
                new InsertOneModel<>(item(0)),
                new InsertOneModel<>(item(201)));
        attempt("bulkWrite ordered", () -> counts(items.bulkWrite(mixed)));
        attempt("bulkWrite unordered", () -> counts(items.bulkWrite(mixed, new BulkWriteOptions().ordered(false))));
        attempt("bulkWrite", () -> counts(items.bulkWrite(List.of(
                new InsertOneModel<>(item(202)),
                new DeleteOneModel<>(d("_id", 202)),
                new UpdateOneModel<>(d("_id", 4), d("$inc", d("group", 10)))))));
    }

    private void updates() {
        show("updateOne", updated(items.updateOne(d("_id", 5), d("$set", d("name", "five"), "$push", d("tags", "new")))));
        List<Document> raised = List.of(d("$set", d("price", d("$add", List.of("$price", 1)))));
        show("updateMany", updated(items.updateMany(d("group", 1), raised)));
        show("replaceOne", updated(items.replaceOne(d("_id", 6), d("group", 6))));
        show("upsert", updated(items.updateOne(d("_id", 220), d("$set", d("group", 7)), new UpdateOptions().upsert(true))));
        FindOneAndUpdateOptions after = new FindOneAndUpdateOptions().returnDocument(ReturnDocument.AFTER);
        show("findOneAndUpdate", items.findOneAndUpdate(d("_id", 7), d("$inc", d("group", 1)), after));
        FindOneAndReplaceOptions untagged = new FindOneAndReplaceOptions().projection(d("tags", 0));
        show("findOneAndReplace", items.findOneAndReplace(d("_id", 8), d("group", 8), untagged));
        show("findOneAndDelete", items.findOneAndDelete(d("group", 4), new FindOneAndDeleteOptions().sort(d("_id", -1))));
        show("deleteOne", items.deleteOne(d("_id", 220)).getDeletedCount());
        show("deleteMany", items.deleteMany(d("_id", d("$gte", 200))).getDeletedCount());
    }
}

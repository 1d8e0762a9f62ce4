package script;

import static script.Transcript.MANY;
import static script.Transcript.LARGE;
import static script.Transcript.PADDING;
import static script.Transcript.attempt;
import static script.Transcript.d;
import static script.Transcript.inserted;
import static script.Transcript.show;

import com.mongodb.WriteConcern;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.CreateCollectionOptions;
import com.mongodb.client.model.IndexOptions;
import com.mongodb.client.model.ValidationOptions;
import java.util.List;
import java.util.stream.IntStream;
import org.bson.Document;

/** What needs no session: indexes and collections, refusals, large documents, writes that nobody waits for. */
record Plain(MongoClient client, MongoDatabase database, MongoCollection<Document> items) {
    void run() {
        administration();
        refusals();
        large();
        unacknowledged();
    }

    private void administration() {
        IndexOptions named = new IndexOptions().name("page");
        show("createIndex", items.createIndex(d("group", 1, "at", -1), named));
        attempt("createIndex again", () -> items.createIndex(d("group", 1), named));
        show("listIndexes", Reads.all(items.listIndexes()));
        show("hint", Reads.ids(items.find(d("group", 2)).hintString("page")));
        items.dropIndex("page");
        show("dropIndex", Reads.all(items.listIndexes()).size());
        show("listCollections", Reads.all(database.listCollectionNames()).stream().sorted().toList());
        show("listDatabases", Reads.all(client.listDatabaseNames()).contains(database.getName()));
    }

    private void refusals() {
        attempt("no such command", () -> database.runCommand(d("noSuchCommand", 1)));
        attempt("bad filter", () -> items.find(d("group", d("$nothing", 1))).first());
        ValidationOptions positive = new ValidationOptions().validator(d("size", d("$gt", 0)));
        attempt("create", () -> create(new CreateCollectionOptions().validationOptions(positive)));
        attempt("create again", () -> create(new CreateCollectionOptions().capped(true).sizeInBytes(4096)));
        attempt("validator", () -> inserted(database.getCollection("checked").insertOne(d("_id", 1, "size", 0))));
    }

    private Object create(CreateCollectionOptions options) {
        database.createCollection("checked", options);
        return true;
    }

    private void large() {
        MongoCollection<Document> large = database.getCollection("large");
        MongoCollection<Document> many = database.getCollection("many");
        show("large document", inserted(large.insertOne(d("_id", 1, "text", LARGE))));
        show("large document read", LARGE.equals(large.find(d("_id", 1)).first().get("text")));
        List<Document> documents = IntStream.range(0, MANY).mapToObj(number -> d("_id", number, "text", PADDING)).toList();
        show("large bulk", many.insertMany(documents).getInsertedIds().size());
        show("large bulk read", Reads.ids(many.find()).stream().mapToInt(id -> (Integer) id).sum());
        show("large bulk deleted", many.deleteMany(d()).getDeletedCount());
    }

    private void unacknowledged() {
        MongoCollection<Document> quiet = database.getCollection("quiet");
        MongoCollection<Document> careless = quiet.withWriteConcern(WriteConcern.UNACKNOWLEDGED);
        boolean first = careless.insertOne(d("_id", 1)).wasAcknowledged();
        boolean second = careless.insertOne(d("_id", 1)).wasAcknowledged();
        show("unacknowledged", List.of(first, second));
        long deadline = System.nanoTime() + 20_000_000_000L;
        Document found = quiet.find().first();
        while (found == null && System.nanoTime() < deadline) {
            Thread.onSpinWait();
            found = quiet.find().first();
        }
        show("unacknowledged read", found);
    }
}

package script;

import static script.Transcript.attempt;
import static script.Transcript.d;
import static script.Transcript.inserted;
import static script.Transcript.item;
import static script.Transcript.show;
import static script.Transcript.updated;

import com.mongodb.ClientSessionOptions;
import com.mongodb.ReadConcern;
import com.mongodb.ReadPreference;
import com.mongodb.WriteConcern;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import java.util.List;
import org.bson.Document;

/** Sessions, retries, transactions, and reads and writes with concerns. */
record Sessions(MongoClient client, MongoDatabase database, MongoCollection<Document> items) {
    private static final Document ADDED = d("_id", d("$gte", 300));

    void run() {
        MongoCollection<Document> said = database.getCollection("said");
        try (ClientSession session = client.startSession(ClientSessionOptions.builder().causallyConsistent(true).build())) {
            said.insertOne(session, d("_id", 1));
            show("session", List.of(said.find(session).first(), session.getOperationTime() != null));
        }
        failOnce("find");
        attempt("retried read", () -> items.find(d("_id", 9)).first());
        failOnce("insert");
        attempt("retried write", () -> inserted(said.insertOne(d("_id", 2))));
        show("retried write read", said.countDocuments());
    }

    /** The server closes the connection on the next such command of this application. */
    private void failOnce(String command) {
        Document data = d("failCommands", List.of(command), "closeConnection", true, "appName", database.getName());
        Document failPoint = d("configureFailPoint", "failCommand", "mode", d("times", 1), "data", data);
        attempt("fail " + command, () -> client.getDatabase("admin").runCommand(failPoint).get("ok"));
    }

    private Object name(int id) {
        return items.find(d("_id", id)).first().get("name");
    }

    void transactions() {
        try (ClientSession session = client.startSession()) {
            session.startTransaction();
            items.insertMany(session, List.of(item(300), item(301)));
            items.updateOne(session, d("_id", 10), d("$set", d("name", "ten")));
            int inside = Reads.all(items.find(session, ADDED).batchSize(1)).size();
            show("transaction", List.of(inside, items.countDocuments(ADDED)));
            session.commitTransaction();
            show("committed", List.of(items.countDocuments(ADDED), name(10)));
            session.startTransaction();
            show("aborted", items.deleteMany(session, ADDED).getDeletedCount());
            session.abortTransaction();
            show("after abort", items.countDocuments(ADDED));
            session.startTransaction();
            attempt("duplicate in transaction", () -> inserted(items.insertOne(session, item(300))));
            session.abortTransaction();
        }
    }

    void withTransaction() {
        failOnce("commitTransaction");
        try (ClientSession session = client.startSession()) {
            show("withTransaction", session.withTransaction(() -> {
                items.updateOne(session, d("_id", 11), d("$inc", d("group", 100)));
                return items.find(session, d("_id", 11)).first().get("group");
            }));
        }
        show("withTransaction read", items.find(d("_id", 11)).first().get("group"));
    }

    void conflict() {
        try (ClientSession first = client.startSession(); ClientSession second = client.startSession()) {
            first.startTransaction();
            second.startTransaction();
            items.updateOne(first, d("_id", 12), d("$set", d("name", "first")));
            attempt("write conflict", () -> updated(items.updateOne(second, d("_id", 12), d("$set", d("name", "second")))));
            second.abortTransaction();
            first.commitTransaction();
        }
        show("write conflict read", name(12));
    }

    void concerns() {
        MongoCollection<Document> safe = items.withWriteConcern(WriteConcern.MAJORITY).withReadConcern(ReadConcern.MAJORITY);
        MongoCollection<Document> anywhere = safe.withReadPreference(ReadPreference.secondaryPreferred());
        try (ClientSession session = client.startSession(ClientSessionOptions.builder().causallyConsistent(true).build())) {
            show("majority", updated(safe.updateOne(session, d("_id", 13), d("$set", d("name", "thirteen")))));
            show("secondaryPreferred", anywhere.find(session, d("_id", 13)).first().get("name"));
            show("secondaryPreferred batches", Reads.all(anywhere.find(session).batchSize(7)).size());
        }
        MongoCollection<Document> linearizable = items.withReadConcern(ReadConcern.LINEARIZABLE);
        show("linearizable", linearizable.find(d("_id", 13)).first().get("name"));
    }

    void snapshot() {
        try (ClientSession session = client.startSession(ClientSessionOptions.builder().snapshot(true).build())) {
            long before = items.countDocuments(session);
            items.withWriteConcern(WriteConcern.MAJORITY).insertOne(item(310));
            show("snapshot", items.countDocuments(session) - before);
        }
    }

    void onStandalone() {
        try (ClientSession session = client.startSession()) {
            session.startTransaction();
            attempt("transaction", () -> inserted(items.insertOne(session, item(300))));
        }
        attempt("change stream", () -> {
            database.getCollection("watched").watch().cursor().close();
            return true;
        });
    }
}

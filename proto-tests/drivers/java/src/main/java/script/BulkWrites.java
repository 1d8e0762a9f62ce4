package script;

import static com.mongodb.client.model.bulk.ClientBulkWriteOptions.clientBulkWriteOptions;
import static com.mongodb.client.model.bulk.ClientUpdateOneOptions.clientUpdateOneOptions;
import static script.Transcript.d;
import static script.Transcript.show;

import com.mongodb.ClientBulkWriteException;
import com.mongodb.ConnectionString;
import com.mongodb.MongoNamespace;
import com.mongodb.WriteError;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.bulk.ClientBulkWriteResult;
import com.mongodb.client.model.bulk.ClientNamespacedWriteModel;
import com.mongodb.client.model.bulk.ClientUpdateResult;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import java.util.logging.Level;
import java.util.logging.Logger;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.bson.Document;

/**
 * An application that writes to two collections at once by the driver's {@code MongoClient.bulkWrite} (MongoDB 8.0):
 * {@code script.BulkWrites <connection string>}.
 *
 * <p>Each operation is executed on both collections. A line begins with the name of the collection that it is about: one
 * is shaped, and the other is plain.
 */
public final class BulkWrites {
    private static final List<String> COLLECTIONS = List.of("trades", "plain");
    private static final Instant STARTED = Instant.parse("2023-10-26T15:47:03.434Z");
    /** Kept, as a logger that nobody holds forgets its level. */
    private static final Logger DRIVER = Logger.getLogger("org.mongodb.driver");

    private final MongoClient client;
    private final MongoDatabase database;

    /** An operation, without its collection. */
    private interface Operation extends Function<MongoNamespace, ClientNamespacedWriteModel> {}

    private BulkWrites(MongoClient client, MongoDatabase database) {
        this.client = client;
        this.database = database;
    }

    public static void main(String[] arguments) {
        DRIVER.setLevel(Level.OFF);
        ConnectionString uri = new ConnectionString(arguments[0]);
        try (MongoClient client = MongoClients.create(uri)) {
            new BulkWrites(client, client.getDatabase(uri.getDatabase())).run();
        }
    }

    private static Document trade(int number) {
        Date date = Date.from(STARTED.plusSeconds(60L * number));
        return d("_id", number, "customerId", number % 3, "quantity", 10 * number, "date", date);
    }

    private static Document id(int number) {
        return d("_id", number);
    }

    private void run() {
        Stream<Operation> inserts =
                IntStream.range(0, 12).mapToObj(number -> name -> ClientNamespacedWriteModel.insertOne(name, trade(number)));
        bulk("insert", true, inserts.toList());
        bulk("ordered", true, List.of(
                name -> ClientNamespacedWriteModel.updateOne(name, id(1), d("$inc", d("quantity", 5))),
                name -> ClientNamespacedWriteModel.updateMany(name, d("customerId", 2), d("$set", d("state", "open"))),
                name -> ClientNamespacedWriteModel.replaceOne(name, id(3), trade(3).append("quantity", -1)),
                name -> ClientNamespacedWriteModel.updateOne(
                        name, id(20), d("$setOnInsert", trade(20)), clientUpdateOneOptions().upsert(true)),
                name -> ClientNamespacedWriteModel.updateOne(name, id(99), d("$inc", d("quantity", 1))),
                name -> ClientNamespacedWriteModel.deleteOne(name, id(4)),
                name -> ClientNamespacedWriteModel.deleteMany(name, d("customerId", 0, "quantity", d("$gt", 60)))));
        bulk("unordered", false, List.of(
                name -> ClientNamespacedWriteModel.insertOne(name, trade(1)),
                name -> ClientNamespacedWriteModel.insertOne(name, trade(30)),
                name -> ClientNamespacedWriteModel.updateOne(name, id(30), d("$inc", d("date", 1))),
                name -> ClientNamespacedWriteModel.deleteOne(name, id(5))));
    }

    private void bulk(String step, boolean ordered, List<Operation> operations) {
        List<ClientNamespacedWriteModel> models = new ArrayList<>();
        for (Operation operation : operations) {
            for (String collection : COLLECTIONS) {
                models.add(operation.apply(new MongoNamespace(database.getName(), collection)));
            }
        }
        Map<Integer, WriteError> errors = Map.of();
        ClientBulkWriteResult result;
        try {
            result = client.bulkWrite(models, clientBulkWriteOptions().ordered(ordered).verboseResults(true));
        } catch (ClientBulkWriteException failure) {
            errors = failure.getWriteErrors();
            result = failure.getPartialResult().orElseThrow();
        }
        Stream<Long> counts = Stream.of(
                result.getInsertedCount(),
                result.getMatchedCount(),
                result.getModifiedCount(),
                result.getUpsertedCount(),
                result.getDeletedCount());
        List<Double> halves = counts.map(count -> (double) count / COLLECTIONS.size()).toList();
        for (int position = 0; position < COLLECTIONS.size(); position++) {
            String collection = COLLECTIONS.get(position);
            List<Document> outcomes = new ArrayList<>();
            for (int index = position; index < models.size(); index += COLLECTIONS.size()) {
                outcomes.add(outcome(index, result.getVerboseResults().orElseThrow(), errors));
            }
            show(collection + " " + step, outcomes);
            List<Document> documents = database.getCollection(collection).find().sort(id(1)).into(new ArrayList<>());
            show(collection + " documents", documents);
            show(collection + " counts of " + step, halves);
        }
    }

    private static Document outcome(int index, ClientBulkWriteResult.VerboseResults results, Map<Integer, WriteError> errors) {
        if (errors.containsKey(index)) {
            return d("code", errors.get(index).getCode());
        }
        if (results.getInsertResults().containsKey(index)) {
            return d("inserted", results.getInsertResults().get(index).getInsertedId().orElseThrow());
        }
        ClientUpdateResult updated = results.getUpdateResults().get(index);
        if (updated != null) {
            return d(
                    "matched", updated.getMatchedCount(),
                    "modified", updated.getModifiedCount(),
                    "upserted", updated.getUpsertedId().orElse(null));
        }
        return d("deleted", results.getDeleteResults().get(index).getDeletedCount());
    }
}

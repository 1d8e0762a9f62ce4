package script;

import static java.util.stream.Collectors.toList;

import com.mongodb.MongoBulkWriteException;
import com.mongodb.MongoCommandException;
import com.mongodb.MongoException;
import com.mongodb.MongoWriteException;
import com.mongodb.bulk.BulkWriteError;
import com.mongodb.bulk.BulkWriteResult;
import com.mongodb.client.result.InsertOneResult;
import com.mongodb.client.result.UpdateResult;
import java.time.Instant;
import java.util.Date;
import java.util.List;
import java.util.TreeSet;
import java.util.function.Supplier;
import org.bson.Document;
import org.bson.json.JsonMode;
import org.bson.json.JsonWriterSettings;

/** What is printed, and the documents that are stored. */
final class Transcript {
    static final String LARGE = "x".repeat(5_000_000);
    static final String PADDING = "y".repeat(500);
    static final int MANY = 20_000;

    private static final Instant STARTED = Instant.parse("2023-10-26T15:47:03.434Z");
    private static final JsonWriterSettings CANONICAL =
            JsonWriterSettings.builder().outputMode(JsonMode.EXTENDED).build();

    private Transcript() {}

    /** A document of names and values by turns. */
    static Document d(Object... pairs) {
        Document document = new Document();
        for (int at = 0; at < pairs.length; at += 2) {
            document.append((String) pairs[at], pairs[at + 1]);
        }
        return document;
    }

    static Document item(int number) {
        return d(
                "_id", number,
                "group", number % 5,
                "name", "item " + number,
                "price", number * 0.25,
                "large", number * 10_000_000_000L,
                "at", Date.from(STARTED.plusSeconds(60L * number)),
                "tags", List.of(number % 2 == 0 ? "even" : "odd", "g" + number % 5));
    }

    static void show(String step, Object value) {
        String line = d("is", value).toJson(CANONICAL);
        System.out.println(step + " " + line.substring("{\"is\": ".length(), line.length() - 1));
    }

    static void attempt(String step, Supplier<Object> run) {
        try {
            show(step, run.get());
        } catch (MongoException error) {
            show(step, failure(error));
        }
    }

    /** What an application can tell of an error. What has no code came from a socket, and names a port. */
    private static Document failure(MongoException error) {
        Document shown = d(
                "error", error.getClass().getSimpleName(), "labels", List.copyOf(new TreeSet<>(error.getErrorLabels())), "code", error.getCode());
        if (error instanceof MongoCommandException command) {
            shown.append("codeName", command.getErrorCodeName()).append("message", command.getErrorMessage());
        } else if (error instanceof MongoWriteException write) {
            shown.append("message", write.getError().getMessage());
        } else if (error instanceof MongoBulkWriteException bulk) {
            shown.append("writeErrors", bulk.getWriteErrors().stream().map(Transcript::writeError).collect(toList()));
            shown.append("result", counts(bulk.getWriteResult()));
        } else if (error.getCode() > 0) {
            shown.append("message", error.getMessage().replaceAll(" on server .*", ""));
        }
        return shown;
    }

    private static Document writeError(BulkWriteError error) {
        return d("index", error.getIndex(), "code", error.getCode(), "message", error.getMessage());
    }

    static Document counts(BulkWriteResult result) {
        return d(
                "inserted", result.getInsertedCount(),
                "matched", result.getMatchedCount(),
                "modified", result.getModifiedCount(),
                "deleted", result.getDeletedCount(),
                "upserted", result.getUpserts().stream().map(upsert -> d("index", upsert.getIndex(), "_id", upsert.getId())).collect(toList()));
    }

    static Document updated(UpdateResult result) {
        return d("matched", result.getMatchedCount(), "modified", result.getModifiedCount(), "upserted", result.getUpsertedId());
    }

    static Object inserted(InsertOneResult result) {
        return result.getInsertedId();
    }
}

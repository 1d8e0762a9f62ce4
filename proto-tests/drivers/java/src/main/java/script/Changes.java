package script;

import static script.Transcript.d;
import static script.Transcript.item;
import static script.Transcript.show;

import com.mongodb.client.MongoChangeStreamCursor;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.model.changestream.ChangeStreamDocument;
import com.mongodb.client.model.changestream.FullDocument;
import com.mongodb.client.model.changestream.UpdateDescription;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.bson.Document;

/** A change stream, read and resumed. */
final class Changes {
    private Changes() {}

    static void run(MongoCollection<Document> watched) {
        List<ChangeStreamDocument<Document>> seen = new ArrayList<>();
        try (MongoChangeStreamCursor<ChangeStreamDocument<Document>> stream = watched.watch()
                .fullDocument(FullDocument.UPDATE_LOOKUP)
                .maxAwaitTime(500, TimeUnit.MILLISECONDS)
                .cursor()) {
            show("change stream", stream.tryNext());
            watched.insertOne(item(1));
            watched.updateOne(d("_id", 1), d("$set", d("name", "one"), "$unset", d("price", 1)));
            watched.insertOne(d("_id", 2));
            watched.deleteOne(d("_id", 2));
            while (seen.size() < 4) {
                seen.add(stream.next());
            }
        }
        show("changes", seen.stream().map(Changes::event).toList());
        try (MongoChangeStreamCursor<ChangeStreamDocument<Document>> stream =
                watched.watch().resumeAfter(seen.get(0).getResumeToken()).cursor()) {
            show("resumed", event(stream.next()));
        }
    }

    private static Document event(ChangeStreamDocument<Document> change) {
        UpdateDescription update = change.getUpdateDescription();
        return d(
                "operationType", change.getOperationTypeString(),
                "ns", change.getNamespaceDocument(),
                "documentKey", change.getDocumentKey(),
                "fullDocument", change.getFullDocument(),
                "updatedFields", update == null ? null : update.getUpdatedFields(),
                "removedFields", update == null ? null : update.getRemovedFields());
    }
}

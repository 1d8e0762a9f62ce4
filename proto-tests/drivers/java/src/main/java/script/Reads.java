package script;

import static script.Transcript.d;
import static script.Transcript.show;

import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoCursor;
import com.mongodb.client.MongoIterable;
import com.mongodb.client.model.Collation;
import java.util.ArrayList;
import java.util.List;
import org.bson.Document;

/** Reads of all kinds on one collection. */
record Reads(MongoCollection<Document> items) {
    void run() {
        show("find", all(items.find(d("group", d("$lt", 3))).projection(d("name", 1, "at", 1)).sort(d("price", -1)).skip(5).limit(4)));
        show("findOne", items.find(d("_id", "none")).first());
        show("batches", ids(items.find().batchSize(7).sort(d("_id", 1))));
        List<Object> first = new ArrayList<>();
        try (MongoCursor<Document> cursor = items.find().batchSize(5).sort(d("_id", 1)).iterator()) {
            while (first.size() < 7) {
                first.add(cursor.next().get("_id"));
            }
        }
        show("closed early", first);
        Collation numeric = Collation.builder().locale("en").numericOrdering(true).build();
        show("collation", ids(items.find(d("_id", d("$lt", 30))).sort(d("name", 1)).collation(numeric)));
        aggregates();
    }

    private void aggregates() {
        Document group = d("_id", "$group", "price", d("$sum", "$price"), "count", d("$sum", 1));
        show("aggregate", all(items.aggregate(List.of(d("$group", group), d("$sort", d("_id", 1))))));
        List<Document> tagged = List.of(d("$unwind", "$tags"), d("$sort", d("_id", 1, "tags", 1)), d("$project", d("tags", 1)));
        show("aggregate in batches", all(items.aggregate(tagged).batchSize(7)));
        List<String> tags = items.distinct("tags", String.class).into(new ArrayList<>());
        tags.sort(null);
        show("distinct", tags);
        show("countDocuments", items.countDocuments(d("group", 2)));
        show("estimatedDocumentCount", items.estimatedDocumentCount());
    }

    static <T> List<T> all(MongoIterable<T> found) {
        return found.into(new ArrayList<>());
    }

    static List<Object> ids(MongoIterable<Document> found) {
        return all(found.map(document -> document.get("_id")));
    }
}

package chat;

import java.time.Instant;
import java.util.Map;
import org.springframework.data.annotation.Id;
import org.springframework.data.mongodb.core.index.CompoundIndex;
import org.springframework.data.mongodb.core.index.Indexed;
import org.springframework.data.mongodb.core.mapping.Document;

/** @param reactions how often each was given */
@Document("messages")
@CompoundIndex(def = "{ room: 1, sentAt: -1 }")
public record Message(
        @Id String id, String room, Instant sentAt, @Indexed String author, String text, Map<String, Integer> reactions) {}

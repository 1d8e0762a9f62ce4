package chat;

import java.time.Instant;
import java.util.List;
import java.util.Optional;
import org.springframework.data.domain.Page;
import org.springframework.data.domain.Pageable;
import org.springframework.data.mongodb.repository.Aggregation;
import org.springframework.data.mongodb.repository.MongoRepository;
import org.springframework.data.mongodb.repository.Query;

public interface Messages extends MongoRepository<Message, String> {
    Page<Message> findByRoomOrderBySentAtDesc(String room, Pageable page);

    Optional<Message> findByRoomAndId(String room, String id);

    List<Message> findByAuthorOrderBySentAt(String author);

    @Query(
            value = "{ room: ?0, sentAt: { $gte: ?1, $lt: ?2 }, text: { $regex: ?3, $options: 'i' } }",
            sort = "{ sentAt: 1 }")
    List<Message> search(String room, Instant from, Instant until, String text);

    long deleteByRoomAndSentAtBefore(String room, Instant time);

    @Aggregation({
        "{ $group: { _id: '$room', messages: { $sum: 1 }, authors: { $addToSet: '$author' }, last: { $max: '$sentAt' } } }",
        "{ $project: { _id: 0, room: '$_id', messages: 1, authors: { $size: '$authors' }, last: 1 } }",
        "{ $sort: { room: 1 } }"
    })
    List<Room> rooms();

    record Room(String room, int messages, int authors, Instant last) {}
}

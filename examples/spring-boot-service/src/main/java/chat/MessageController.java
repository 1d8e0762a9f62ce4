package chat;

import static org.springframework.data.mongodb.core.query.Criteria.where;
import static org.springframework.data.mongodb.core.query.Query.query;

import java.time.Instant;
import java.util.List;
import java.util.Map;
import org.springframework.data.domain.PageRequest;
import org.springframework.data.mongodb.core.FindAndModifyOptions;
import org.springframework.data.mongodb.core.MongoTemplate;
import org.springframework.data.mongodb.core.query.Query;
import org.springframework.data.mongodb.core.query.Update;
import org.springframework.http.HttpStatus;
import org.springframework.http.ResponseEntity;
import org.springframework.web.bind.annotation.DeleteMapping;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.PathVariable;
import org.springframework.web.bind.annotation.PostMapping;
import org.springframework.web.bind.annotation.PutMapping;
import org.springframework.web.bind.annotation.RequestBody;
import org.springframework.web.bind.annotation.RequestParam;
import org.springframework.web.bind.annotation.ResponseStatus;
import org.springframework.web.bind.annotation.RestController;

@RestController
public class MessageController {
    private static final int PAGE_SIZE = 20;

    private final Messages messages;
    private final MongoTemplate template;

    MessageController(Messages messages, MongoTemplate template) {
        this.messages = messages;
        this.template = template;
    }

    record Draft(String author, String text, Instant sentAt) {}

    record History(long messages, int pages, List<Message> page) {}

    @PostMapping("/rooms/{room}/messages")
    @ResponseStatus(HttpStatus.CREATED)
    Message send(@PathVariable String room, @RequestBody Draft draft) {
        Instant sentAt = draft.sentAt() == null ? Instant.now() : draft.sentAt();
        return messages.insert(new Message(null, room, sentAt, draft.author(), draft.text(), Map.of()));
    }

    /** The newest first, {@code page} from 0. */
    @GetMapping("/rooms/{room}/messages")
    History history(@PathVariable String room, @RequestParam(defaultValue = "0") int page) {
        var found = messages.findByRoomOrderBySentAtDesc(room, PageRequest.of(page, PAGE_SIZE));
        return new History(found.getTotalElements(), found.getTotalPages(), found.getContent());
    }

    @GetMapping("/rooms/{room}/messages/{id}")
    ResponseEntity<Message> one(@PathVariable String room, @PathVariable String id) {
        return ResponseEntity.of(messages.findByRoomAndId(room, id));
    }

    @GetMapping("/rooms/{room}/search")
    List<Message> search(
            @PathVariable String room, @RequestParam Instant from, @RequestParam Instant until, @RequestParam String text) {
        return messages.search(room, from, until, text);
    }

    @PutMapping("/rooms/{room}/messages/{id}/text")
    ResponseEntity<Message> edit(@PathVariable String room, @PathVariable String id, @RequestBody Draft draft) {
        Query written = query(where("room").is(room).and("id").is(id).and("author").is(draft.author()));
        return changed(written, Update.update("text", draft.text()));
    }

    @PostMapping("/rooms/{room}/messages/{id}/reactions/{reaction}")
    ResponseEntity<Message> react(@PathVariable String room, @PathVariable String id, @PathVariable String reaction) {
        return changed(query(where("room").is(room).and("id").is(id)), new Update().inc("reactions." + reaction, 1));
    }

    private ResponseEntity<Message> changed(Query query, Update update) {
        var options = FindAndModifyOptions.options().returnNew(true);
        return ResponseEntity.of(template.update(Message.class).matching(query).apply(update).withOptions(options).findAndModify());
    }

    @DeleteMapping("/rooms/{room}/messages")
    Map<String, Long> deleteBefore(@PathVariable String room, @RequestParam Instant before) {
        return Map.of("deleted", messages.deleteByRoomAndSentAtBefore(room, before));
    }

    @GetMapping("/authors/{author}/messages")
    List<Message> byAuthor(@PathVariable String author) {
        return messages.findByAuthorOrderBySentAt(author);
    }

    @GetMapping("/rooms")
    List<Messages.Room> rooms() {
        return messages.rooms();
    }
}

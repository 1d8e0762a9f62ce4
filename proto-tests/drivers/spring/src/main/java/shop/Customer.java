package shop;

import org.bson.types.ObjectId;
import org.springframework.data.annotation.Id;
import org.springframework.data.mongodb.core.index.Indexed;
import org.springframework.data.mongodb.core.mapping.Document;

@Document("customers")
public record Customer(@Id ObjectId id, @Indexed(unique = true) String email, String name) {}

package shop;

import org.bson.types.ObjectId;
import org.springframework.data.mongodb.repository.MongoRepository;

public interface Customers extends MongoRepository<Customer, ObjectId> {}

package shop;

import java.time.Instant;
import java.util.Collection;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.bson.types.ObjectId;
import org.springframework.data.domain.Limit;
import org.springframework.data.domain.Page;
import org.springframework.data.domain.Pageable;
import org.springframework.data.domain.Slice;
import org.springframework.data.mongodb.repository.Aggregation;
import org.springframework.data.mongodb.repository.MongoRepository;
import org.springframework.data.mongodb.repository.Query;
import org.springframework.data.mongodb.repository.Update;

public interface Orders extends MongoRepository<Order, ObjectId> {
    Optional<Order> findByNumber(String number);

    Page<Order> findByCustomer(ObjectId customer, Pageable pageable);

    Slice<Order> findByCustomerAndStatus(ObjectId customer, String status, Pageable pageable);

    List<Order> findByCustomerAndPlacedAtBetweenOrderByPlacedAtDesc(ObjectId customer, Instant from, Instant to);

    List<Order> findByLinesSkuAndStatusIn(String sku, Collection<String> statuses, Limit limit);

    List<Order> findTop3ByCustomerOrderByPlacedAtDesc(ObjectId customer);

    Stream<Order> findByStatusOrderByNumber(String status);

    List<Order> findByStatus(String status);

    long countByCustomerAndStatus(ObjectId customer, String status);

    boolean existsByNumber(String number);

    long deleteByStatus(String status);

    @Query("{ 'customer': ?0, 'lines': { $elemMatch: { 'sku': ?1, 'quantity': { $gte: ?2 } } } }")
    List<Order> withAtLeast(ObjectId customer, String sku, int quantity);

    @Query("{ 'customer': ?0, 'status': ?1 }")
    @Update("{ $set: { 'status': ?2 }, $inc: { 'version': 1 } }")
    long changeStatus(ObjectId customer, String from, String to);

    record Sales(String name, double sold, int orders) {}

    @Aggregation({
        "{ $unwind: '$lines' }",
        "{ $group: { _id: '$customer', sold: { $sum: { $multiply: ['$lines.quantity', '$lines.price'] } }, numbers: { $addToSet: '$number' } } }",
        "{ $lookup: { from: 'customers', localField: '_id', foreignField: '_id', as: 'customer' } }",
        "{ $project: { _id: 0, name: { $first: '$customer.name' }, sold: 1, orders: { $size: '$numbers' } } }",
        "{ $sort: { name: 1 } }"
    })
    List<Sales> sales();
}

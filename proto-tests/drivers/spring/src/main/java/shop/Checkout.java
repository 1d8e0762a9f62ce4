package shop;

import java.util.List;
import org.bson.types.ObjectId;
import org.springframework.stereotype.Service;
import org.springframework.transaction.annotation.Transactional;

/** What is done wholly or not at all. */
@Service
public class Checkout {
    private final Orders orders;

    Checkout(Orders orders) {
        this.orders = orders;
    }

    @Transactional
    public List<Order> place(Order order, String cancelled) {
        orders.insert(order);
        Order other = orders.findByNumber(cancelled).orElseThrow();
        other.status = "cancelled";
        return List.of(order, orders.save(other));
    }

    @Transactional
    public void fail(Order order, ObjectId customer) {
        orders.insert(order);
        orders.changeStatus(customer, "paid", "cancelled");
        throw new IllegalStateException("out of stock");
    }
}

package shop;

import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import org.bson.types.ObjectId;
import org.springframework.data.annotation.Id;
import org.springframework.data.annotation.Version;
import org.springframework.data.mongodb.core.index.CompoundIndex;
import org.springframework.data.mongodb.core.index.Indexed;
import org.springframework.data.mongodb.core.mapping.Document;

@Document("orders")
@CompoundIndex(name = "of_customer", def = "{'customer': 1, 'placedAt': -1}")
@CompoundIndex(name = "by_sku", def = "{'lines.sku': 1}")
public class Order {
    private static final Instant FIRST = Instant.parse("2026-01-01T12:00:00Z");

    @Id
    ObjectId id;

    @Version
    Long version;

    @Indexed(unique = true)
    String number;

    ObjectId customer;
    Instant placedAt;

    @Indexed
    String status = "placed";

    List<Line> lines = new ArrayList<>();
    String note;

    /** A cart is given up when this has passed. */
    @Indexed(expireAfter = "1s")
    Instant heldUntil;

    static String named(int number) {
        return String.format("A-%04d", number);
    }

    static Order numbered(int number, Customer of) {
        Order order = new Order();
        order.number = named(number);
        order.customer = of.id();
        order.placedAt = FIRST.plus(number, ChronoUnit.DAYS);
        for (int at = 0; at < 1 + number % 3; at++) {
            order.lines.add(new Line("S" + (number + at) % 7, 1 + at, 2.5 * (1 + number % 4)));
        }
        return order;
    }

    static Order cart(int number, Customer of, String heldUntil) {
        Order cart = numbered(number, of);
        cart.status = "cart";
        cart.heldUntil = Instant.parse(heldUntil);
        return cart;
    }

    @Override
    public String toString() {
        return String.join(" ", number, "v" + version, placedAt.toString(), status, lines.toString(), String.valueOf(note), String.valueOf(heldUntil));
    }
}

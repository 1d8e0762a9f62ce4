package shop;

import static org.springframework.data.mongodb.core.query.Criteria.where;
import static org.springframework.data.mongodb.core.query.Query.query;
import static shop.Order.cart;
import static shop.Order.named;
import static shop.Order.numbered;
import static shop.Shop.step;

import java.time.Instant;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.function.Consumer;
import org.springframework.data.domain.Limit;
import org.springframework.data.domain.Page;
import org.springframework.data.domain.PageRequest;
import org.springframework.data.domain.Slice;
import org.springframework.data.domain.Sort;
import org.springframework.data.mongodb.core.BulkOperations;
import org.springframework.data.mongodb.core.FindAndModifyOptions;
import org.springframework.data.mongodb.core.MongoTemplate;
import org.springframework.data.mongodb.core.aggregation.AggregationUpdate;
import org.springframework.data.mongodb.core.aggregation.StringOperators;
import org.springframework.data.mongodb.core.index.IndexInfo;
import org.springframework.data.mongodb.core.query.Query;
import org.springframework.data.mongodb.core.query.Update;

/** What the shop does. */
final class Steps {
    private static final long EXPIRY_LIMIT_MS = 90_000;
    private static final Sort NEWEST = Sort.by("placedAt").descending();

    private final Customers customers;
    private final Orders orders;
    private final Checkout checkout;
    private final MongoTemplate template;
    private Customer ada;
    private Customer bob;

    Steps(Customers customers, Orders orders, Checkout checkout, MongoTemplate template) {
        this.customers = customers;
        this.orders = orders;
        this.checkout = checkout;
        this.template = template;
    }

    void run() throws InterruptedException {
        open();
        place();
        browse();
        save();
        update();
        transact();
        expire();
        remove();
    }

    private List<Order> all() {
        return orders.findAll(Sort.by("number"));
    }

    private void open() {
        step("indexes", () -> template.indexOps(Order.class).getIndexInfo().stream().map(Steps::index));
        ada = customers.save(new Customer(null, "ada@example.com", "Ada"));
        bob = customers.save(new Customer(null, "bob@example.com", "Bob"));
        step("a customer again", () -> customers.save(new Customer(null, "ada@example.com", "Adele")));
    }

    private static String index(IndexInfo info) {
        return info.getName() + " " + info.getIndexFields() + " " + info.isUnique() + " " + info.getExpireAfter();
    }

    private void place() {
        step("save", () -> orders.save(numbered(0, ada)));
        step("insert", () -> orders.insert(numbered(1, bob)));
        Collection<Order> rest = new ArrayList<>();
        for (int number = 2; number < 45; number++) {
            rest.add(numbered(number, number % 3 == 0 ? bob : ada));
        }
        step("save all", () -> orders.saveAll(rest).size());
        step("number of the same customer", () -> orders.save(numbered(0, ada)));
        step("number of another customer", () -> orders.insert(numbered(0, bob)));
        step("numbers of others", () -> orders.insert(List.of(numbered(46, ada), numbered(1, ada), numbered(47, ada))));
        step("a number twice", () -> orders.insert(List.of(numbered(51, ada), numbered(51, bob))));
        step("placed", this::all);
    }

    private void browse() {
        for (int page = 0; page < 4; page++) {
            Page<Order> found = orders.findByCustomer(ada.id(), PageRequest.of(page, 10, NEWEST));
            step("page", () -> found.getContent() + " of " + found.getTotalElements());
        }
        step("slice", () -> {
            Slice<Order> slice = orders.findByCustomerAndStatus(bob.id(), "placed", PageRequest.of(1, 5, Sort.by("placedAt")));
            return slice.getContent() + " more " + slice.hasNext();
        });
        step("by number", () -> orders.findByNumber(named(7)));
        step("by number of nobody", () -> orders.findByNumber("none"));
        step("by id", () -> orders.findById(orders.findByNumber(named(8)).orElseThrow().id));
        step("between", () -> orders.findByCustomerAndPlacedAtBetweenOrderByPlacedAtDesc(
                ada.id(), Instant.parse("2026-01-20T00:00:00Z"), Instant.parse("2026-02-05T00:00:00Z")));
        step("by SKU", () -> orders.findByLinesSkuAndStatusIn("S3", List.of("placed", "paid"), Limit.of(40)).stream().map(order -> order.number).sorted());
        step("top 3", () -> orders.findTop3ByCustomerOrderByPlacedAtDesc(ada.id()));
        step("stream", () -> orders.findByStatusOrderByNumber("placed").map(order -> order.number));
        step("with at least", () -> orders.withAtLeast(ada.id(), "S3", 2).stream().map(order -> order.number).sorted());
        step("count", () -> orders.countByCustomerAndStatus(ada.id(), "placed"));
        step("count all", orders::count);
        step("exists", () -> orders.existsByNumber(named(9)) + " " + orders.existsByNumber("none"));
        step("distinct", () -> template.findDistinct(query(where("customer").is(bob.id())), "lines.sku", Order.class, String.class).stream().sorted());
        step("sales", orders::sales);
    }

    private Order changed(int number, Consumer<Order> change) {
        Order order = orders.findByNumber(named(number)).orElseThrow();
        change.accept(order);
        return orders.save(order);
    }

    private void save() {
        step("save a change", () -> changed(3, order -> order.status = "paid"));
        step("save what another has saved", () -> {
            Order mine = orders.findByNumber(named(4)).orElseThrow();
            changed(4, order -> order.lines.remove(0));
            mine.status = "cancelled";
            return orders.save(mine);
        });
        step("what another has saved", () -> orders.findByNumber(named(4)));
        step("save a number that another has", () -> changed(5, order -> order.number = named(6)));
        step("save a new number", () -> changed(5, order -> order.number = "B-0005"));
        step("the old number again", () -> orders.insert(numbered(5, bob)));
        step("to another customer", () -> changed(15, order -> order.customer = bob.id()));
        step("delete what another has saved", () -> {
            Order mine = orders.findByNumber(named(10)).orElseThrow();
            changed(10, order -> order.note = "ten");
            orders.delete(mine);
            return "deleted";
        });
    }

    private void update() {
        step("change the status", () -> orders.changeStatus(bob.id(), "placed", "paid"));
        step("update the first", () -> template.updateFirst(query(where("number").is(named(11))), new Update().set("note", "eleven").inc("lines.0.quantity", 2), Order.class));
        step("an element", () -> template.updateFirst(query(where("number").is(named(13)).and("lines.sku").is("S0")), new Update().set("lines.$.quantity", 7), Order.class));
        step("array filters", () -> template.updateFirst(query(where("number").is(named(14))),
                new Update().inc("lines.$[cheap].price", 1.0).filterArray(where("cheap.price").lt(50)), Order.class));
        step("push", () -> template.updateFirst(query(where("number").is(named(12))), new Update().push("lines", new Line("S9", 1, 1)), Order.class));
        step("pull", () -> template.updateFirst(query(where("number").is(named(12))), new Update().pull("lines", query(where("quantity").gt(1))), Order.class));
        step("a number that another has", () -> template.updateFirst(query(where("number").is(named(9))), Update.update("number", named(12)), Order.class));
        step("update all by a pipeline", () -> template.updateMulti(query(where("status").is("paid")),
                AggregationUpdate.update().set("note").toValue(StringOperators.valueOf("number").concat("!")), Order.class));
        for (int time = 0; time < 2; time++) {
            step("upsert", () -> template.upsert(query(where("number").is("C-0001")), new Update().set("status", "paid").setOnInsert("customer", bob.id())
                    .setOnInsert("placedAt", Instant.parse("2026-04-01T00:00:00Z")), Order.class).getMatchedCount());
        }
        step("find and modify", () -> template.findAndModify(query(where("customer").is(ada.id()).and("status").is("placed")).with(Sort.by("placedAt")),
                Update.update("status", "sent"), FindAndModifyOptions.options().returnNew(true), Order.class));
        step("find and replace", () -> template.findAndReplace(query(where("number").is(named(16))), numbered(16, ada)));
        step("a bulk", () -> bulk(60).execute());
        step("a bulk with a number that another has", () -> bulk(60).execute());
        step("changed", this::all);
    }

    private BulkOperations bulk(int number) {
        return template.bulkOps(BulkOperations.BulkMode.UNORDERED, Order.class)
                .insert(numbered(number, ada))
                .updateOne(query(where("number").is(named(18))), Update.update("status", "sent"))
                .updateMulti(query(where("lines.sku").is("S2")), new Update().inc("version", 1))
                .remove(query(where("number").is(named(19))));
    }

    private void transact() {
        step("transaction", () -> checkout.place(numbered(70, ada), named(20)));
        step("transaction that fails", () -> {
            checkout.fail(numbered(71, ada), bob.id());
            return "committed";
        });
        step("transaction with a number that another has", () -> checkout.place(numbered(70, bob), named(21)));
        step("transacted", this::all);
    }

    private void expire() throws InterruptedException {
        for (int number = 80; number < 83; number++) {
            orders.insert(cart(number, number % 2 == 0 ? ada : bob, "2026-01-01T00:00:00Z"));
        }
        step("a cart that is held", () -> orders.insert(cart(83, ada, "2099-01-01T00:00:00Z")));
        long deadline = System.currentTimeMillis() + EXPIRY_LIMIT_MS;
        while (orders.findByStatus("cart").size() > 1 && System.currentTimeMillis() < deadline) {
            Thread.sleep(200);
        }
        step("carts are given up", () -> orders.findByStatus("cart"));
        step("a given up number again", () -> orders.insert(numbered(80, ada)));
    }

    private void remove() {
        step("remove", () -> template.remove(query(where("number").is(named(22))), Order.class));
        step("its number again", () -> orders.insert(numbered(22, bob)));
        step("find and remove", () -> template.findAndRemove(new Query(where("customer").is(ada.id())).with(NEWEST), Order.class));
        step("delete by status", () -> orders.deleteByStatus("sent"));
        step("delete all by id", () -> {
            orders.deleteAllById(List.of(orders.findByNumber(named(23)).orElseThrow().id, orders.findByNumber(named(24)).orElseThrow().id));
            return orders.count();
        });
        step("left", this::all);
    }
}

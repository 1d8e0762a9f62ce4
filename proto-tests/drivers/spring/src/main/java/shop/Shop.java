package shop;

import java.util.concurrent.Callable;
import java.util.stream.Stream;
import org.springframework.boot.CommandLineRunner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.data.mongodb.MongoDatabaseFactory;
import org.springframework.data.mongodb.MongoTransactionManager;
import org.springframework.data.mongodb.core.MongoTemplate;

/**
 * A shop on Spring Data MongoDB, which prints all it sees: {@code shop.Shop --spring.mongodb.uri=<connection string>}.
 *
 * <p>The connection string names a database, which is empty, on a replica set or a mongos. The shop must not be able to tell whom it talks to.
 */
@SpringBootApplication
public class Shop {
    public static void main(String[] arguments) {
        SpringApplication.run(Shop.class, arguments).close();
    }

    @Bean
    MongoTransactionManager transactionManager(MongoDatabaseFactory factory) {
        return new MongoTransactionManager(factory);
    }

    @Bean
    CommandLineRunner steps(Customers customers, Orders orders, Checkout checkout, MongoTemplate template) {
        return arguments -> new Steps(customers, orders, checkout, template).run();
    }

    /** Prints what the shop sees, or what it can tell of the error; without the ids that the driver made by its clock. */
    static void step(String name, Callable<Object> run) {
        String seen;
        try {
            Object value = run.call();
            seen = value instanceof Stream<?> stream ? stream.toList().toString() : String.valueOf(value);
        } catch (Exception error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            seen = error.getClass().getSimpleName() + ": " + cause.getClass().getSimpleName() + ": " + cause.getMessage();
        }
        // The driver adds the server's address, and the whole reply with its times.
        seen = seen.replaceAll("\\b6[0-9a-f]{23}\\b", "made").replaceAll(" on (MongoDB )?server [^ ]*", "").replaceAll("The full response is .*", "");
        System.out.println(name + ": " + seen.replace('\n', ' '));
    }
}

package script;

import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.logging.Level;
import java.util.logging.Logger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.bson.Document;

/** The script that every driver runs, on the Java driver: {@code script.Main <connection string> <database>}. */
public final class Main {
    private static final String[] FACTS = {
        "maxWireVersion", "maxBsonObjectSize", "maxMessageSizeBytes", "maxWriteBatchSize", "logicalSessionTimeoutMinutes", "readOnly"
    };
    /** An option of every other driver. In Java an application has to say it in its own words. */
    private static final Pattern CA_FILE = Pattern.compile("&tlsCAFile=([^&]*)");
    /** The driver logs through java.util.logging; kept, as a logger that nobody holds forgets its level. */
    private static final Logger DRIVER = Logger.getLogger("org.mongodb.driver");

    private Main() {}

    public static void main(String[] arguments) throws Exception {
        DRIVER.setLevel(Level.OFF);
        String name = arguments[1];
        try (MongoClient client = MongoClients.create(settings(arguments[0], name))) {
            MongoDatabase database = client.getDatabase(name);
            database.drop();
            run(client, database);
            database.drop();
        }
    }

    private static void run(MongoClient client, MongoDatabase database) {
        MongoDatabase admin = client.getDatabase("admin");
        Document hello = admin.runCommand(new Document("hello", 1));
        Document server = new Document("version", admin.runCommand(new Document("buildInfo", 1)).get("version"));
        for (String fact : FACTS) {
            server.append(fact, hello.get(fact));
        }
        Transcript.show("server", server);
        Transcript.show("ping", admin.runCommand(new Document("ping", 1)).get("ok"));
        MongoCollection<Document> items = database.getCollection("items");
        new Writes(items).run();
        new Reads(items).run();
        new Plain(client, database, items).run();
        Sessions sessions = new Sessions(client, database, items);
        sessions.run();
        if (hello.containsKey("setName") || "isdbgrid".equals(hello.get("msg"))) {
            sessions.transactions();
            sessions.withTransaction();
            sessions.conflict();
            sessions.concerns();
            sessions.snapshot();
            Changes.run(database.getCollection("watched"));
        } else {
            sessions.onStandalone();
        }
    }

    private static MongoClientSettings settings(String uri, String name) throws Exception {
        Matcher file = CA_FILE.matcher(uri);
        Path authority = file.find() ? Path.of(file.group(1)) : null;
        MongoClientSettings.Builder settings = MongoClientSettings.builder()
                .applyConnectionString(new ConnectionString(file.replaceAll("")))
                .applicationName(name);
        if (authority != null) {
            SSLContext context = trust(authority);
            settings.applyToSslSettings(ssl -> ssl.context(context));
        }
        return settings.build();
    }

    private static SSLContext trust(Path file) throws Exception {
        KeyStore authorities = KeyStore.getInstance(KeyStore.getDefaultType());
        authorities.load(null, null);
        try (InputStream pem = Files.newInputStream(file)) {
            authorities.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(pem));
        }
        TrustManagerFactory managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(authorities);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, managers.getTrustManagers(), null);
        return context;
    }
}

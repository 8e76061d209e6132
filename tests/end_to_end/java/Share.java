import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Sends records, and reads and acknowledges them with a share group (KIP-932):
 *
 *   Share.java BOOTSTRAP TOPIC COUNT
 *
 * Ends with one JSON object on standard output, or with a stack trace and exit status 1.
 */
public class Share {
    public static void main(String[] arguments) throws Exception {
        String address = arguments[0];
        String topic = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        Map<String, Object> settings = Map.of("bootstrap.servers", address, "client.id", topic);
        try (Admin admin = Admin.create(settings)) {
            var group = new ConfigResource(ConfigResource.Type.GROUP, topic);
            var earliest = new AlterConfigOp(
                new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
            admin.incrementalAlterConfigs(Map.of(group, List.of(earliest))).all().get();
        }
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            for (int n = 0; n < count; n++) {
                producer.send(new ProducerRecord<>(topic, Integer.toString(n)));
            }
        }
        Map<String, Object> reads = Map.of("bootstrap.servers", address, "client.id", topic, "group.id", topic);
        int seen = 0;
        try (var consumer = new KafkaShareConsumer<>(reads, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(Set.of(topic));
            long until = System.nanoTime() + Duration.ofSeconds(60).toNanos();
            while (seen < count && System.nanoTime() < until) {
                seen += consumer.poll(Duration.ofMillis(500)).count();
                consumer.commitSync();
            }
        }
        System.out.printf("{\"seen\": %d}%n", seen);
    }
}

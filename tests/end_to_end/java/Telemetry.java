import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A producer that pushes its metrics to the cluster, which gets a subscription for them:
 *
 *   Telemetry.java BOOTSTRAP TOPIC
 *
 * Ends with its client instance id on standard output, or with a stack trace and exit status 1.
 */
public class Telemetry {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0], "client.id", arguments[1]);
        try (Admin admin = Admin.create(settings)) {
            var all = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, "all");
            var wanted = List.of(set("metrics", "*"), set("interval.ms", "500"));
            admin.incrementalAlterConfigs(Map.of(all, wanted)).all().get();
        }
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(arguments[1], "pushed")).get();
            var id = producer.clientInstanceId(Duration.ofSeconds(30));
            Thread.sleep(2_000);
            System.out.println(id);
        }
    }

    private static AlterConfigOp set(String name, String value) {
        return new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
    }
}

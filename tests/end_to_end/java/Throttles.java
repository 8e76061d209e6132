import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Prints what the metrics of Kafka's own client say of throttle times, as one JSON object:
 *
 *   Throttles.java produce ADDRESS TOPIC CLIENT_ID SIZE...    after one request for each of these records
 *   Throttles.java fetch   ADDRESS TOPIC CLIENT_ID COUNT      after this many records, of one fetch each
 */
public class Throttles {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[1]);
        settings.put("client.id", arguments[3]);
        if (arguments[0].equals("produce")) {
            produce(arguments, settings);
        } else {
            fetch(arguments, settings);
        }
    }

    private static void produce(String[] arguments, Properties settings) throws Exception {
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            double lastMs = 0;
            for (int i = 4; i < arguments.length; i++) {
                byte[] value = new byte[Integer.parseInt(arguments[i])];
                long begin = System.nanoTime();
                producer.send(new ProducerRecord<byte[], byte[]>(arguments[2], 0, null, value)).get();
                lastMs = (System.nanoTime() - begin) / 1e6;
            }
            print(producer.metrics(), "produce-throttle-time", lastMs);
        }
    }

    private static void fetch(String[] arguments, Properties settings) {
        settings.put("fetch.max.bytes", "1"); // so that a fetch returns one batch
        TopicPartition partition = new TopicPartition(arguments[2], 0);
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            for (int seen = 0; seen < Integer.parseInt(arguments[4]); ) {
                seen += consumer.poll(Duration.ofSeconds(1)).count();
            }
            print(consumer.metrics(), "fetch-throttle-time", 0);
        }
    }

    /** The client has a throttle time from each response, 0 from most. Their sum is the same in each run. */
    private static void print(Map<MetricName, ? extends Metric> metrics, String name, double lastMs) {
        double sum = value(metrics, name + "-avg") * value(metrics, "response-total");
        System.out.printf("{\"max\": %s, \"sum\": %d, \"last_request_ms\": %s}%n",
            value(metrics, name + "-max"), Math.round(sum), lastMs);
    }

    private static double value(Map<MetricName, ? extends Metric> metrics, String name) {
        return metrics.entrySet().stream()
            .filter(entry -> entry.getKey().name().equals(name) && !entry.getKey().tags().containsKey("node-id"))
            .mapToDouble(entry -> (Double) entry.getValue().metricValue()).findFirst().orElseThrow();
    }
}

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The steps of everything.py, with Kafka's own Java client:
 *
 *   Everything.java BOOTSTRAP TOPIC GROUP_PROTOCOL SENT COMMITTED ABORTED
 *
 * Ends with one JSON object on standard output, or with a stack trace and exit status 1.
 */
public class Everything {
    public static void main(String[] arguments) throws Exception {
        String address = arguments[0];
        String topic = arguments[1];
        int sent = Integer.parseInt(arguments[3]);
        int committed = Integer.parseInt(arguments[4]);
        int aborted = Integer.parseInt(arguments[5]);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address, "client.id", topic))) {
            admin.createTopics(List.of(new NewTopic(topic, 3, (short) 3))).all().get();
            produce(address, topic, sent, Map.of());
            try (var producer = producer(address, topic, Map.of("transactional.id", topic))) {
                producer.initTransactions();
                producer.beginTransaction();
                send(producer, topic, committed);
                producer.commitTransaction();
                producer.beginTransaction();
                send(producer, topic, aborted);
                producer.abortTransaction();
            }
            int seen = consume(address, topic, arguments[2], sent + committed);
            int described = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
            var nodes = admin.describeCluster().nodes().get();
            var ids = nodes.stream().map(Node::id).toList();
            boolean hasGroup = admin.listConsumerGroups().all().get().stream().anyMatch(g -> g.groupId().equals(topic));
            var groups = admin.describeConsumerGroups(List.of(topic)).all().get();
            // These two go to every broker.
            int logDirs = admin.describeLogDirs(ids).allDescriptions().get().size();
            for (int id : ids) {
                var broker = new ConfigResource(ConfigResource.Type.BROKER, Integer.toString(id));
                admin.describeConfigs(List.of(broker)).all().get();
            }
            admin.deleteTopics(List.of(topic)).all().get();
            System.out.printf(
                "{\"seen\": %d, \"partitions\": %d, \"brokers\": %d, \"log_dirs\": %d, \"has_group\": %b, "
                    + "\"groups\": %d, \"ports\": %s}%n",
                seen, described, nodes.size(), logDirs, hasGroup, groups.size(),
                nodes.stream().map(Node::port).toList());
        }
    }

    private static KafkaProducer<byte[], byte[]> producer(String address, String topic, Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("bootstrap.servers", address);
        settings.put("client.id", topic);
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static void produce(String address, String topic, int count, Map<String, Object> more) throws Exception {
        try (var producer = producer(address, topic, more)) {
            send(producer, topic, count);
        }
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, String topic, int count) throws Exception {
        var sent = IntStream.range(0, count)
            .mapToObj(n -> producer.send(new ProducerRecord<>(topic, n % 3, null, text(n))))
            .toList();
        producer.flush();
        for (var one : sent) {
            one.get();
        }
    }

    private static byte[] text(int number) {
        return Integer.toString(number).getBytes(StandardCharsets.US_ASCII);
    }

    private static int consume(String address, String topic, String protocol, int count) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", address, "client.id", topic, "group.id", topic, "group.protocol", protocol,
            "isolation.level", "read_committed", "auto.offset.reset", "earliest");
        int seen = 0;
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(Set.of(topic));
            long until = System.nanoTime() + Duration.ofSeconds(60).toNanos();
            while (seen < count && System.nanoTime() < until) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    seen++;
                }
            }
            consumer.commitSync();
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                seen++;
            }
        }
        return seen;
    }
}

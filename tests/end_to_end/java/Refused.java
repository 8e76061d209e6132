import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own clients at the same time, each until a file named after its client-id is in a folder:
 *
 *   Refused.java BOOTSTRAP FOLDER CLIENT...
 *
 *   CLIENT    produce:CLIENT_ID:TOPIC:PARTITION:IDEMPOTENT:IN_FLIGHT    sends 0, 1, 2, ...
 *             consume:CLIENT_ID:TOPIC:COUNT    reads 0 to COUNT - 1, a batch at a time, again and again
 *             manage:CLIENT_ID    creates, extends and deletes a topic, again and again
 *
 * Ends with a line "CLIENT_ID NUMBER" for each: acknowledged records, or rounds. A failure ends it with a stack trace and
 * exit status 1.
 */
public class Refused {
    private static String address;
    private static Path folder;

    public static void main(String[] arguments) throws Exception {
        address = arguments[0];
        folder = Path.of(arguments[1]);
        String[] clients = Arrays.copyOfRange(arguments, 2, arguments.length);
        var pool = Executors.newFixedThreadPool(clients.length);
        List<Future<Long>> running = new ArrayList<>();
        for (String client : clients) {
            running.add(pool.submit(client(client.split(":"))));
        }
        for (int i = 0; i < clients.length; i++) {
            System.out.println(clients[i].split(":")[1] + " " + running.get(i).get());
        }
        System.exit(0);
    }

    private static Callable<Long> client(String[] parts) {
        return switch (parts[0]) {
            case "produce" -> () -> produce(parts);
            case "consume" -> () -> consume(parts[1], parts[2], Long.parseLong(parts[3]));
            case "manage" -> () -> manage(parts[1]);
            default -> throw new IllegalArgumentException(parts[0]);
        };
    }

    private static boolean goesOn(String clientId) {
        return !Files.exists(folder.resolve(clientId));
    }

    private static Map<String, Object> settings(String clientId) {
        return new HashMap<>(Map.of("bootstrap.servers", address, "client.id", clientId));
    }

    private static long produce(String[] parts) throws Exception {
        String clientId = parts[1];
        String topic = parts[2];
        int partition = Integer.parseInt(parts[3]);
        AtomicLong acknowledged = new AtomicLong();
        AtomicReference<Exception> failure = new AtomicReference<>();
        var settings = settings(clientId);
        settings.put("enable.idempotence", parts[4]);
        settings.put("max.in.flight.requests.per.connection", parts[5]);
        settings.put("acks", "all");
        settings.put("batch.size", "200");
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (long number = 0; goesOn(clientId); number++) {
                byte[] value = Long.toString(number).getBytes(StandardCharsets.US_ASCII);
                producer.send(new ProducerRecord<>(topic, partition, null, value), (metadata, error) -> {
                    if (error == null) {
                        acknowledged.incrementAndGet();
                    } else {
                        failure.compareAndSet(null, error);
                    }
                });
                Thread.sleep(100);
            }
        }
        if (failure.get() != null) {
            throw failure.get();
        }
        return acknowledged.get();
    }

    private static long consume(String clientId, String topic, long count) {
        var settings = settings(clientId);
        settings.put("max.partition.fetch.bytes", 1);
        var partition = List.of(new TopicPartition(topic, 0));
        long times = 0;
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(partition);
            for (; goesOn(clientId); times++) {
                consumer.seekToBeginning(partition);
                for (long seen = 0; seen < count && goesOn(clientId);) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                        long number = Long.parseLong(new String(record.value(), StandardCharsets.US_ASCII));
                        if (number != seen || record.offset() != seen) {
                            throw new AssertionError("expected record " + seen + ", got " + record);
                        }
                        seen++;
                    }
                }
            }
        }
        return times;
    }

    private static long manage(String clientId) throws Exception {
        long times = 0;
        try (Admin admin = Admin.create(settings(clientId))) {
            for (; goesOn(clientId); times++) {
                String topic = clientId + "-" + times;
                admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
                admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(2))).all().get();
                admin.deleteTopics(List.of(topic)).all().get();
            }
        }
        return times;
    }
}

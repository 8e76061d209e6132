import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The same as many_members.py, with Kafka's own Java clients in one process:
 *
 *   Members.java consume TOPIC COUNT SECONDS RECORDS_OF_A_PARTITION KEY=VALUE...
 *   Members.java produce TOPIC COUNT SECONDS RECORD_BYTES KEY=VALUE...
 *
 * Ends with one JSON object on standard output; the clients log to standard error.
 */
public class Members {
    private static final Queue<Double> REBALANCES = new ConcurrentLinkedQueue<>();
    private static final Queue<String> ERRORS = new ConcurrentLinkedQueue<>();
    private static final AtomicLong BYTES = new AtomicLong();
    private static long end;

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        end = System.nanoTime() + Long.parseLong(arguments[3]) * 1_000_000_000;
        int size = Integer.parseInt(arguments[4]);
        Properties settings = new Properties();
        for (String pair : Arrays.copyOfRange(arguments, 5, arguments.length)) {
            int split = pair.indexOf('=');
            settings.put(pair.substring(0, split), pair.substring(split + 1));
        }
        long[] sent = new long[count];
        List<Thread> members = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            int member = number;
            members.add(new Thread(() -> {
                try {
                    if (arguments[0].equals("consume")) {
                        consume(topic, size, settings);
                    } else {
                        sent[member] = produce(topic, member, size, settings);
                    }
                } catch (Exception error) {
                    failed(error);
                }
            }));
        }
        members.forEach(Thread::start);
        List<String> flow = new ArrayList<>();
        while (System.nanoTime() < end || members.stream().anyMatch(Thread::isAlive)) {
            flow.add(String.format("[%.3f, %d]", now(), BYTES.get()));
            Thread.sleep(500);
        }
        System.out.printf("{\"rebalances\": %s, \"flow\": %s, \"errors\": [%s], \"sent\": %s}%n",
            REBALANCES, flow, String.join(", ", ERRORS), Arrays.toString(sent));
    }

    private static double now() {
        return System.nanoTime() / 1e9;  // the clock of Python's time.monotonic
    }

    private static void failed(Exception error) {
        ERRORS.add(String.format("[%.3f, \"%s\"]", now(), error.toString().replaceAll("[\"\\\\\\n]", " ")));
    }

    private static void consume(String topic, int recordsOfAPartition, Properties settings) {
        var counting = new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                REBALANCES.add(now());
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            }
        };
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            consumer.subscribe(List.of(topic), counting);
            while (System.nanoTime() < end) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    BYTES.addAndGet(record.serializedValueSize());
                    if (record.offset() == recordsOfAPartition - 1) {
                        consumer.seekToBeginning(List.of(new TopicPartition(topic, record.partition())));
                    }
                }
            }
        }
    }

    private static long produce(String topic, int member, int recordBytes, Properties settings) {
        var bytes = new ByteArraySerializer();
        long number = 0;
        try (var producer = new KafkaProducer<>(settings, bytes, bytes)) {
            for (; System.nanoTime() < end; number++) {
                byte[] key = (member + ":" + number).getBytes(StandardCharsets.US_ASCII);
                producer.send(new ProducerRecord<>(topic, key, new byte[recordBytes]), (metadata, error) -> {
                    if (error == null) {
                        BYTES.addAndGet(recordBytes);
                    } else {
                        failed(error);
                    }
                });
            }
            producer.flush();
        }
        return number;
    }
}

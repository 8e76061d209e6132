import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own Java client for the end-to-end tests. Run as a single source file:
 *
 *   Records.java produce TOPIC COUNT  KEY=VALUE...    sends the numbered records of records.py
 *   Records.java stream  TOPIC EVERY_MS stop=FILE partitions=COUNT KEY=VALUE...    sends them until the file exists,
 *                                                     in turn to each partition
 *   Records.java consume TOPIC COUNT  KEY=VALUE...    reads them from the start and checks each one
 *   Records.java member  TOPIC SECONDS KEY=VALUE...   is a member of a group; counts its rebalances
 *   Records.java group   TOPICS MEMBERS stop=FILE KEY=VALUE...    is a whole group, which reads until the file exists
 *
 * Ends with one JSON object on standard output, or with a stack trace and exit status 1.
 */
public class Records {
    private static final int VALUE_BYTES = 100;

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        int amount = Integer.parseInt(arguments[2]);
        Properties settings = new Properties();
        for (String pair : Arrays.copyOfRange(arguments, 3, arguments.length)) {
            int split = pair.indexOf('=');
            settings.put(pair.substring(0, split), pair.substring(split + 1));
        }
        switch (arguments[0]) {
            case "produce" -> produce(topic, amount, settings);
            case "stream" -> stream(topic, amount, settings);
            case "consume" -> consume(topic, amount, settings);
            case "group" -> group(topic, amount, settings);
            case "member" -> member(topic, amount, settings);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static byte[] key(long number) {
        return Long.toString(number).getBytes(StandardCharsets.US_ASCII);
    }

    private static byte[] value(long number) {
        ByteBuffer bytes = ByteBuffer.allocate(VALUE_BYTES).putLong(number);
        for (int i = 0; bytes.position() < VALUE_BYTES - 4; i++) {
            bytes.put((byte) ((number & 255) + i));
        }
        CRC32 crc = new CRC32();
        crc.update(bytes.array(), 0, VALUE_BYTES - 4);
        return bytes.putInt((int) crc.getValue()).array();
    }

    private static void produce(String topic, int count, Properties settings) throws Exception {
        AtomicInteger acknowledged = new AtomicInteger();
        AtomicReference<Exception> failure = new AtomicReference<>();
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (long number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(topic, 0, key(number), value(number)), (metadata, error) -> {
                    if (error == null) {
                        acknowledged.incrementAndGet();
                    } else {
                        failure.compareAndSet(null, error);
                    }
                });
            }
        }
        if (failure.get() != null) {
            throw failure.get();
        }
        System.out.printf("{\"acknowledged\": %d}%n", acknowledged.get());
    }

    private static void stream(String topic, int everyMs, Properties settings) throws Exception {
        Path stop = Path.of((String) settings.remove("stop"));
        int partitions = Integer.parseInt((String) settings.remove("partitions"));
        AtomicInteger acknowledged = new AtomicInteger();
        AtomicLong longestMs = new AtomicLong();
        AtomicReference<Exception> failure = new AtomicReference<>();
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (long number = 0; !Files.exists(stop); number++) {
                long sent = System.nanoTime();
                int partition = (int) (number % partitions);
                producer.send(new ProducerRecord<>(topic, partition, key(number), value(number)), (metadata, error) -> {
                    longestMs.accumulateAndGet((System.nanoTime() - sent) / 1_000_000, Math::max);
                    if (error == null) {
                        acknowledged.incrementAndGet();
                    } else {
                        failure.compareAndSet(null, error);
                    }
                });
                Thread.sleep(everyMs);
            }
        }
        if (failure.get() != null) {
            throw failure.get();
        }
        System.out.printf("{\"acknowledged\": %d, \"longest_ms\": %d}%n", acknowledged.get(), longestMs.get());
    }

    private static void group(String topics, int members, Properties settings) throws Exception {
        Path stop = Path.of((String) settings.remove("stop"));
        ConcurrentMap<String, Integer> seen = new ConcurrentHashMap<>();
        ExecutorService pool = Executors.newFixedThreadPool(members);
        List<Future<?>> running = new ArrayList<>();
        for (int member = 0; member < members; member++) {
            running.add(pool.submit(() -> {
                try (var consumer = new KafkaConsumer<>(
                        settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                    consumer.subscribe(List.of(topics.split(",")));
                    while (!Files.exists(stop)) {
                        consumer.poll(Duration.ofMillis(200)).forEach(record ->
                            seen.merge(record.topic() + " " + record.partition() + " " + record.offset(), 1, Integer::sum));
                    }
                }
            }));
        }
        pool.shutdown();
        for (Future<?> one : running) {
            one.get();
        }
        int all = seen.values().stream().mapToInt(Integer::intValue).sum();
        System.out.printf("{\"seen\": %d, \"doubled\": %d}%n", seen.size(), all - seen.size());
    }

    private static void consume(String topic, int count, Properties settings) {
        TopicPartition partition = new TopicPartition(topic, 0);
        long seen = 0;
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            while (seen < count) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    if (!Arrays.equals(record.key(), key(seen)) || !Arrays.equals(record.value(), value(seen))) {
                        throw new AssertionError("expected record " + seen + ", got " + record);
                    }
                    seen++;
                }
            }
        }
        System.out.printf("{\"seen\": %d}%n", seen);
    }

    private static void member(String topic, int seconds, Properties settings) {
        AtomicInteger assignments = new AtomicInteger();
        AtomicInteger revocations = new AtomicInteger();
        AtomicLong bytes = new AtomicLong();
        ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                assignments.incrementAndGet();
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                revocations.incrementAndGet();
            }
        };
        int revoked;
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic), listener);
            long end = System.nanoTime() + seconds * 1_000_000_000L;
            while (System.nanoTime() < end) {
                consumer.poll(Duration.ofMillis(200)).forEach(record -> bytes.addAndGet(record.serializedValueSize()));
            }
            revoked = revocations.get(); // closing revokes once more, of its own will
        }
        System.out.printf(
            "{\"assignments\": %d, \"revocations\": %d, \"size_bytes\": %d}%n", assignments.get(), revoked, bytes.get());
    }
}

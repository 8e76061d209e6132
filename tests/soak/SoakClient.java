import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own client in a soak:
 *
 *   SoakClient.java produce|consume ADDRESS TOPIC CLIENT_ID STOP_FILE
 *
 * Runs until the file exists. The records are those of records.py, and the lines on standard output those of workers.py.
 */
public class SoakClient {
    private static final int VALUE_BYTES = 1_000;
    private static final AtomicLong bytes = new AtomicLong();

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[1]);
        settings.put("client.id", arguments[3]);
        settings.put("reconnect.backoff.max.ms", "1000");
        Path stop = Path.of(arguments[4]);
        switch (arguments[0]) {
            case "produce" -> produce(arguments[2], stop, settings);
            case "consume" -> consume(arguments[2], stop, settings);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
    }

    private static byte[] key(long number) {
        return Long.toString(number).getBytes(StandardCharsets.US_ASCII);
    }

    private static byte[] value(long number) {
        ByteBuffer buffer = ByteBuffer.allocate(VALUE_BYTES).putLong(number);
        for (int i = 0; buffer.position() < VALUE_BYTES - 4; i++) {
            buffer.put((byte) ((number & 255) + i));
        }
        CRC32 crc = new CRC32();
        crc.update(buffer.array(), 0, VALUE_BYTES - 4);
        return buffer.putInt((int) crc.getValue()).array();
    }

    private static synchronized void say(String format, Object... arguments) {
        double now = System.currentTimeMillis() / 1000.0;
        System.out.println("{\"t\": " + now + ", " + String.format(format, arguments) + "}");
    }

    private static void everySecond(Runnable report) {
        var timer = Executors.newSingleThreadScheduledExecutor(work -> {
            Thread thread = new Thread(work);
            thread.setDaemon(true);
            return thread;
        });
        timer.scheduleAtFixedRate(report, 1, 1, TimeUnit.SECONDS);
    }

    private static void produce(String topic, Path stop, Properties settings) throws Exception {
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        settings.put("linger.ms", "5");
        settings.put("buffer.memory", "262144");
        settings.put("max.block.ms", "900000");
        settings.put("delivery.timeout.ms", "900000");
        AtomicLong acknowledged = new AtomicLong();
        Set<Long> left = Collections.synchronizedSet(new TreeSet<>());
        everySecond(() -> say("\"records\": %d, \"bytes\": %d", acknowledged.get(), bytes.get()));
        long number = 0;
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (; !Files.exists(stop); number++) {
                long sent = number;
                byte[] key = key(sent);
                left.add(sent);
                producer.send(new ProducerRecord<>(topic, 0, key, value(sent)), (metadata, error) -> {
                    if (error == null) {
                        left.remove(sent);
                        acknowledged.incrementAndGet();
                        bytes.addAndGet(key.length + VALUE_BYTES);
                    } else {
                        say("\"error\": \"record %d: %s\"", sent, error.getClass().getSimpleName());
                    }
                });
            }
        }
        say("\"end\": true, \"records\": %d, \"bytes\": %d, \"sent\": %d, \"unacknowledged\": %s",
            acknowledged.get(), bytes.get(), number, left);
    }

    private static void consume(String topic, Path stop, Properties settings) {
        settings.put("group.id", settings.get("client.id"));
        settings.put("auto.offset.reset", "earliest");
        long next = 0;
        long last = -1;
        boolean wasNew = true;
        AtomicLong read = new AtomicLong();
        AtomicLong again = new AtomicLong();
        everySecond(() -> say("\"records\": %d, \"bytes\": %d, \"again\": %d", read.get(), bytes.get(), again.get()));
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (!Files.exists(stop)) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    long offset = record.offset();
                    bytes.addAndGet(record.serializedKeySize() + record.serializedValueSize());
                    if (offset < next) {
                        again.incrementAndGet();
                        if (wasNew) {
                            say("\"again_at\": %d", offset);
                        }
                        wasNew = false;
                        continue;
                    }
                    if (offset > next) {
                        say("\"fault\": \"offset %d follows offset %d\"", offset, next - 1);
                    }
                    wasNew = true;
                    next = offset + 1;
                    read.incrementAndGet();
                    long number = ByteBuffer.wrap(record.value()).getLong();
                    if (!Arrays.equals(record.key(), key(number)) || !Arrays.equals(record.value(), value(number))) {
                        say("\"fault\": \"offset %d: wrong bytes\"", offset);
                    } else {
                        if (number != last + 1) {
                            say("\"jump\": [%d, %d, %d]", offset, last, number);
                        }
                        last = number;
                    }
                }
            }
        }
        say("\"end\": true, \"records\": %d, \"bytes\": %d, \"again\": %d, \"next\": %d",
            read.get(), bytes.get(), again.get(), next);
    }
}

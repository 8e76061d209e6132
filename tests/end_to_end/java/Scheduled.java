import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own producer, which sends records when they are due. Run as a single source file:
 *
 *   Scheduled.java TOPIC RECORD_BYTES START_MS FILE KEY=VALUE...    FILE has lines of "AT_MS COUNT", after START_MS
 *
 * Prints the time of each acknowledgement, in ms after START_MS, as a JSON list; or a stack trace, exit status 1.
 */
public class Scheduled {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[0];
        byte[] value = new byte[Integer.parseInt(arguments[1])];
        long startMs = Long.parseLong(arguments[2]);
        Properties settings = new Properties();
        for (String pair : Arrays.copyOfRange(arguments, 4, arguments.length)) {
            int split = pair.indexOf('=');
            settings.put(pair.substring(0, split), pair.substring(split + 1));
        }
        List<Long> acknowledged = Collections.synchronizedList(new ArrayList<>());
        AtomicReference<Exception> failure = new AtomicReference<>();
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.partitionsFor(topic);
            for (String line : Files.readAllLines(Path.of(arguments[3]))) {
                String[] due = line.split(" ");
                Thread.sleep(Math.max(0, startMs + Long.parseLong(due[0]) - System.currentTimeMillis()));
                for (int left = Integer.parseInt(due[1]); left > 0; left--) {
                    producer.send(new ProducerRecord<>(topic, 0, null, value), (metadata, error) -> {
                        if (error == null) {
                            acknowledged.add(System.currentTimeMillis() - startMs);
                        } else {
                            failure.compareAndSet(null, error);
                        }
                    });
                }
            }
        }
        if (failure.get() != null) {
            throw failure.get();
        }
        System.out.println(acknowledged);
    }
}

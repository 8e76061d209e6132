import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Lone consumers of Kafka's own client, with its defaults, all in one process:
 *
 *   Reads.java SECONDS CLIENT_ID,ADDRESS,TOPIC,PARTITIONS...
 *
 * Each reads all partitions of its topic from the start. At the end, each has a line on standard output: its client-id,
 * and the number of its records.
 */
public class Reads {
    public static void main(String[] arguments) throws Exception {
        long end = System.nanoTime() + Long.parseLong(arguments[0]) * 1_000_000_000;
        String[] lines = new String[arguments.length - 1];
        List<Thread> readers = new ArrayList<>();
        for (int number = 0; number < lines.length; number++) {
            int place = number;
            readers.add(new Thread(() -> lines[place] = read(arguments[place + 1].split(","), end)));
        }
        readers.forEach(Thread::start);
        for (Thread reader : readers) {
            reader.join();
        }
        List.of(lines).forEach(System.out::println);  // fails if a reader has failed
    }

    private static String read(String[] cell, long end) {
        Properties settings = new Properties();
        settings.put("client.id", cell[0]);
        settings.put("bootstrap.servers", cell[1]);
        var partitions = IntStream.range(0, Integer.parseInt(cell[3]))
            .mapToObj(number -> new TopicPartition(cell[2], number)).toList();
        int records = 0;
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (System.nanoTime() < end) {
                records += consumer.poll(Duration.ofMillis(100)).count();
            }
        }
        return cell[0] + " " + records;
    }
}

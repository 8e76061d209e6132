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
 *   Reads.java MOST_SECONDS CLIENT_ID,ADDRESS,TOPIC,PARTITIONS,RECORDS...
 *
 * Each reads all partitions of its topic, from the start to the end. At the end, each has a line on standard output: its
 * client-id, and the seconds that it took.
 */
public class Reads {
    public static void main(String[] arguments) throws Exception {
        long most = Long.parseLong(arguments[0]) * 1_000_000_000;
        String[] lines = new String[arguments.length - 1];
        List<Thread> readers = new ArrayList<>();
        for (int number = 0; number < lines.length; number++) {
            int place = number;
            readers.add(new Thread(() -> lines[place] = read(arguments[place + 1].split(","), most)));
        }
        readers.forEach(Thread::start);
        for (Thread reader : readers) {
            reader.join();
        }
        List.of(lines).forEach(System.out::println);  // fails if a reader has failed
    }

    private static String read(String[] cell, long most) {
        Properties settings = new Properties();
        settings.put("client.id", cell[0]);
        settings.put("bootstrap.servers", cell[1]);
        var partitions = IntStream.range(0, Integer.parseInt(cell[3]))
            .mapToObj(number -> new TopicPartition(cell[2], number)).toList();
        long left = Long.parseLong(cell[4]);
        long begin = System.nanoTime();
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (left > 0) {
                if (System.nanoTime() - begin > most) {
                    throw new IllegalStateException(cell[0] + " has " + left + " records left");
                }
                left -= consumer.poll(Duration.ofMillis(100)).count();
            }
            return cell[0] + " " + (System.nanoTime() - begin) / 1e9;
        }
    }
}

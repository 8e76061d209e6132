import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Groups of Kafka's own client, with its defaults, which wait for the first record of an empty topic:
 *
 *   FirstRecords.java BROKER MEMBERS DIRECTORY ROUNDS CLIENT_ID,ADDRESS,TOPIC...
 *
 * Each topic has a partition for each member. When all members of all groups have polled their partitions for two
 * seconds, each partition gets one record. A further round begins when the file DIRECTORY/ROUND exists, such as 1 for
 * the second. After each round there is a line for each group: its client-id, and the ms from the first record's
 * acknowledgement until each partition's record has arrived.
 */
public class FirstRecords {
    private static final long PATIENCE_S = 60;
    private static final AtomicReference<Exception> FAILURE = new AtomicReference<>();
    private static volatile boolean isOver;

    private static final class Group {
        final String clientId;
        final String topic;
        final CountDownLatch assigned;
        volatile CountDownLatch served;

        Group(String clientId, String topic, int members) {
            this.clientId = clientId;
            this.topic = topic;
            this.assigned = new CountDownLatch(members);
        }
    }

    public static void main(String[] arguments) throws Exception {
        int members = Integer.parseInt(arguments[1]);
        List<Group> groups = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (String word : List.of(arguments).subList(4, arguments.length)) {
            String[] parts = word.split(",");
            var group = new Group(parts[0], parts[2], members);
            groups.add(group);
            for (int member = 0; member < members; member++) {
                threads.add(new Thread(() -> {
                    try {
                        follow(group, parts[1], members);
                    } catch (Exception error) {
                        FAILURE.set(error);
                    }
                }));
            }
        }
        threads.forEach(Thread::start);
        for (Group group : groups) {
            await(group.assigned, group.clientId + " is not assigned its partitions");
        }
        Thread.sleep(2_000);
        for (int round = 0; round < Integer.parseInt(arguments[3]); round++) {
            while (round > 0 && !Files.exists(Path.of(arguments[2], String.valueOf(round)))) {
                Thread.sleep(20);
            }
            serve(arguments[0], members, groups);
        }
        isOver = true;
        for (Thread thread : threads) {
            thread.join();
        }
        if (FAILURE.get() != null) {
            throw FAILURE.get();
        }
    }

    private static void serve(String broker, int members, List<Group> groups) throws Exception {
        groups.forEach(group -> group.served = new CountDownLatch(members));
        long[] took = new long[groups.size()];
        var bytes = new ByteArraySerializer();
        Properties settings = new Properties();
        settings.put("bootstrap.servers", broker);
        try (var producer = new KafkaProducer<>(settings, bytes, bytes)) {
            List<Thread> watchers = new ArrayList<>();
            for (int number = 0; number < took.length; number++) {
                Group group = groups.get(number);
                producer.send(new ProducerRecord<>(group.topic, 0, null, new byte[100])).get();
                long begin = System.nanoTime();
                for (int partition = 1; partition < members; partition++) {
                    producer.send(new ProducerRecord<>(group.topic, partition, null, new byte[100])).get();
                }
                int place = number;
                watchers.add(new Thread(() -> {
                    try {
                        await(group.served, group.clientId + " has not all records");
                        took[place] = (System.nanoTime() - begin) / 1_000_000;
                    } catch (Exception error) {
                        FAILURE.set(error);
                    }
                }));
                watchers.get(number).start();
            }
            for (Thread watcher : watchers) {
                watcher.join();
            }
        }
        if (FAILURE.get() != null) {
            throw FAILURE.get();
        }
        for (int number = 0; number < took.length; number++) {
            System.out.println(groups.get(number).clientId + " " + took[number]);
        }
    }

    private static void await(CountDownLatch latch, String otherwise) throws Exception {
        if (!latch.await(PATIENCE_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException(otherwise);
        }
    }

    private static void follow(Group group, String address, int members) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", address);
        settings.put("client.id", group.clientId);
        settings.put("group.id", group.clientId + "-" + group.topic);
        settings.put("auto.offset.reset", "earliest");
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
            var listener = new ConsumerRebalanceListener() {
                private boolean isCounted;

                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    if (partitions.size() == 1 && !isCounted) {  // the group is complete
                        isCounted = true;
                        group.assigned.countDown();
                    }
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                }
            };
            consumer.subscribe(List.of(group.topic), listener);
            while (!isOver) {
                consumer.poll(Duration.ofMillis(100)).forEach(record -> group.served.countDown());
            }
        }
    }
}

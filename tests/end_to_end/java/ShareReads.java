import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of share groups (KIP-932) that read a topic for a time and acknowledge all records. Members with one
 * client-id are one group of that name:
 *
 *   ShareReads.java TOPIC SECONDS SETUP_BOOTSTRAP [CLIENT_ID BOOTSTRAP]...
 *
 * Ends with one JSON object on standard output: for each client-id the bytes of values after each second since its first record, the bytes of each
 * member, the records read, the distinct records, and the failed acknowledgements. Or with a stack trace and exit
 * status 1.
 */
public class ShareReads {
    private static final class Reader extends Thread {
        final String clientId;
        final String address;
        final String topic;
        final int seconds;
        final List<Long> bytes = new ArrayList<>();
        final Set<String> seen = new HashSet<>();
        long records;
        final AtomicLong start;
        long failed;
        Exception error;

        Reader(String clientId, String address, String topic, int seconds, AtomicLong start) {
            this.start = start;
            this.clientId = clientId;
            this.address = address;
            this.topic = topic;
            this.seconds = seconds;
        }

        @Override
        public void run() {
            try {
                read();
            } catch (Exception failure) {
                error = failure;
            }
        }

        private void read() {
            Map<String, Object> settings =
                Map.of("bootstrap.servers", address, "client.id", clientId, "group.id", clientId);
            var deserializer = new ByteArrayDeserializer();
            try (var consumer = new KafkaShareConsumer<>(settings, deserializer, deserializer)) {
                consumer.setAcknowledgementCommitCallback((acknowledged, failure) -> {
                    if (failure != null) {
                        acknowledged.values().forEach(these -> failed += these.size());
                    }
                });
                consumer.subscribe(Set.of(topic));
                long sum = 0;
                while (start.get() == 0 || System.nanoTime() - start.get() < seconds * 1_000_000_000L) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                        start.compareAndSet(0, System.nanoTime());
                        sum += record.value().length;
                        records++;
                        seen.add(record.partition() + "-" + record.offset());
                    }
                    while (start.get() != 0 && bytes.size() < (System.nanoTime() - start.get()) / 1_000_000_000L) {
                        bytes.add(sum);
                    }
                }
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[0];
        int seconds = Integer.parseInt(arguments[1]);
        List<Reader> readers = new ArrayList<>();
        Map<String, AtomicLong> starts = new HashMap<>();
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", arguments[2]))) {
            for (int at = 3; at < arguments.length; at += 2) {
                AtomicLong start = starts.computeIfAbsent(arguments[at], name -> new AtomicLong());
                readers.add(new Reader(arguments[at], arguments[at + 1], topic, seconds, start));
                var group = new ConfigResource(ConfigResource.Type.GROUP, arguments[at]);
                var earliest = new AlterConfigOp(
                    new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
                admin.incrementalAlterConfigs(Map.of(group, List.of(earliest))).all().get();
            }
        }
        for (Reader reader : readers) {
            reader.start();
        }
        Map<String, List<Reader>> groups = new HashMap<>();
        for (Reader reader : readers) {
            reader.join();
            if (reader.error != null) {
                throw reader.error;
            }
            groups.computeIfAbsent(reader.clientId, name -> new ArrayList<>()).add(reader);
        }
        List<String> said = new ArrayList<>();
        groups.forEach((name, members) -> said.add("\"" + name + "\": " + together(members)));
        System.out.println("{" + String.join(", ", said) + "}");
    }

    private static String together(List<Reader> members) {
        List<Long> bytes = new ArrayList<>();
        List<Long> each = new ArrayList<>();
        Set<String> seen = new HashSet<>();
        long records = 0;
        long failed = 0;
        int common = members.stream().mapToInt(member -> member.bytes.size()).min().getAsInt();
        for (int second = 0; second < common; second++) {
            int at = second;
            bytes.add(members.stream().mapToLong(member -> member.bytes.get(at)).sum());
        }
        for (Reader member : members) {
            each.add(member.bytes.get(common - 1));
            seen.addAll(member.seen);
            records += member.records;
            failed += member.failed;
        }
        return String.format(
            "{\"bytes\": %s, \"each\": %s, \"records\": %d, \"different\": %d, \"failed\": %d}",
            bytes, each, records, seen.size(), failed);
    }
}

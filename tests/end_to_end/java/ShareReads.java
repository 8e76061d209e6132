import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Share groups (KIP-932) of one member each, the client-id being the group, read a topic side by side for a while and
 * acknowledge what they read:
 *
 *   ShareReads.java TOPIC SECONDS SETUP_BOOTSTRAP [CLIENT_ID BOOTSTRAP]...
 *
 * Ends with one JSON object on standard output: by client-id how many bytes of values had come after each second, how
 * many records were read, how many different ones, and how many acknowledgements failed. Or it ends with a stack trace
 * and exit status 1.
 */
public class ShareReads {
    private static final class Reader extends Thread {
        final String clientId;
        final String address;
        final String topic;
        final int seconds;
        final List<Long> bytes = new ArrayList<>();
        final Set<Long> offsets = new HashSet<>();
        long records;
        long failed;
        Exception error;

        Reader(String clientId, String address, String topic, int seconds) {
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
                long start = 0;
                while (start == 0 || System.nanoTime() - start < seconds * 1_000_000_000L) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                        start = start == 0 ? System.nanoTime() : start;
                        sum += record.value().length;
                        records++;
                        offsets.add(record.offset());
                    }
                    while (start != 0 && bytes.size() < (System.nanoTime() - start) / 1_000_000_000L) {
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
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", arguments[2]))) {
            for (int at = 3; at < arguments.length; at += 2) {
                readers.add(new Reader(arguments[at], arguments[at + 1], topic, seconds));
                var group = new ConfigResource(ConfigResource.Type.GROUP, arguments[at]);
                var earliest = new AlterConfigOp(
                    new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
                admin.incrementalAlterConfigs(Map.of(group, List.of(earliest))).all().get();
            }
        }
        for (Reader reader : readers) {
            reader.start();
        }
        Map<String, String> said = new HashMap<>();
        for (Reader reader : readers) {
            reader.join();
            if (reader.error != null) {
                throw reader.error;
            }
            said.put(reader.clientId, String.format(
                "{\"bytes\": %s, \"records\": %d, \"different\": %d, \"failed\": %d}",
                reader.bytes, reader.records, reader.offsets.size(), reader.failed));
        }
        StringBuilder out = new StringBuilder();
        said.forEach((name, text) -> out.append(out.length() == 0 ? "" : ", ").append("\"" + name + "\": " + text));
        System.out.println("{" + out + "}");
    }
}

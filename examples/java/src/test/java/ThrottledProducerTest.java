import static org.junit.jupiter.api.Assertions.*;

import java.util.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.RegisterExtension;

class ThrottledProducerTest {
    @RegisterExtension final KafkaThrottle throttle = new KafkaThrottle();

    @Test
    void producerWaitsAndLosesNothing() throws Exception {
        var topic = "orders-" + UUID.randomUUID();
        Map<String, Object> settings = Map.of("bootstrap.servers", throttle.bootstrapServers, "client.id", "java-app");
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.send(new ProducerRecord<>(topic, 0, "", "order 0")).get(); // creates the topic
            throttle.next(3, "Produce", 300, "java-app");
            var began = System.nanoTime();
            for (var number = 1; number < 5; number++) {
                var record = new ProducerRecord<>(topic, 0, "", "order " + number);
                assertEquals(number, producer.send(record).get().offset());
            }
            assertTrue(System.nanoTime() - began >= 900_000_000, "the producer did not wait");
            assertEquals(List.of(300, 300, 300), throttle.observedMs("java-app"));
            var longest = producer.metrics().values().stream()
                .filter(metric -> metric.metricName().name().equals("produce-throttle-time-max")).findFirst();
            assertEquals(300.0, longest.orElseThrow().metricValue());
        }
    }
}

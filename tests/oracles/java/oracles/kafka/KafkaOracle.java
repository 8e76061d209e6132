package oracles.kafka;

import java.util.List;
import oracles.Commands;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;

/** Lets a test drive the classes with which Kafka measures rates and enforces quotas. The test also sets their clock. */
public final class KafkaOracle {
    private KafkaOracle() {
    }

    public static void main(String[] arguments) throws Exception {
        Clock clock = new Clock();
        Commands commands = new Commands();
        commands.add("clock", words -> {
            clock.set(Long.parseLong(words.get(0)));
            return "";
        });
        new Statistic(clock).addTo(commands);
        new ClientQuotas(clock).addTo(commands);
        new ReplicationQuota(clock).addTo(commands);
        new NewConnections(clock).addTo(commands);
        commands.serve();
        System.exit(0); // some of Kafka's threads are no daemons
    }

    /** Returns new metrics, which never expire by themselves. */
    static Metrics metrics(Clock clock) {
        return new Metrics(new MetricConfig(), List.of(), clock, false);
    }
}

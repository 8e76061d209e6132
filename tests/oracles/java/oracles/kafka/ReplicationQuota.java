package oracles.kafka;

import oracles.Commands;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.server.config.ReplicationQuotaManagerConfig;
import org.apache.kafka.server.quota.QuotaType;
import org.apache.kafka.server.quota.ReplicationQuotaManager;

/**
 * The quota of a broker's replication traffic:
 *
 *   replication SAMPLES WINDOW_S   begins with a new manager without a limit
 *   replication-limit LIMIT        in bytes per second
 *   replicate BYTES
 *   exceeded                       whether replicas that lag are held back now
 */
final class ReplicationQuota {
    private final Clock clock;
    private ReplicationQuotaManager manager;

    ReplicationQuota(Clock clock) {
        this.clock = clock;
    }

    void addTo(Commands commands) {
        commands.add("replication", words -> begin(Integer.parseInt(words.get(0)), Integer.parseInt(words.get(1))));
        commands.add("replication-limit", words -> {
            manager.updateQuota(Quota.upperBound(Double.parseDouble(words.get(0))));
            return "";
        });
        commands.add("replicate", words -> {
            manager.record(Long.parseLong(words.get(0)));
            return "";
        });
        commands.add("exceeded", words -> manager.isQuotaExceeded());
    }

    private String begin(int samples, int windowS) {
        manager = new ReplicationQuotaManager(new ReplicationQuotaManagerConfig(samples, windowS),
            KafkaOracle.metrics(clock), QuotaType.LEADER_REPLICATION, clock);
        manager.updateQuota(Quota.upperBound(Long.MAX_VALUE));
        return "";
    }
}

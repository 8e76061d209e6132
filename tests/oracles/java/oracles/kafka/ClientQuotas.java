package oracles.kafka;

import java.net.InetAddress;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import oracles.Commands;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.internals.Sanitizer;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaEntity;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.ClientRequestQuotaManager;
import org.apache.kafka.server.quota.ControllerMutationQuota;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;
import org.apache.kafka.server.quota.QuotaType;

/**
 * The quotas of users and client-ids of one kind:
 *
 *   client-quotas KIND SAMPLES WINDOW_S         begins with a new manager: produce, fetch, request or mutation
 *   limit USER CLIENT_ID LIMIT                  sets it, or removes it if it is "none"
 *   charge USER CLIENT_ID AMOUNT                returns the throttle time in ms
 *   tags USER CLIENT_ID                         under which the client is charged, and the limit
 *   strict USER CLIENT_ID PERMITS...            returns how many are refused, and the throttle time in ms
 *   permissive USER CLIENT_ID PERMITS...        the same, for older versions of a request
 *
 * In `limit`, a user or client-id is "-" if the entity has none, and "<default>" is the default.
 */
final class ClientQuotas {
    private final Clock clock;
    private ClientQuotaManager manager;

    ClientQuotas(Clock clock) {
        this.clock = clock;
    }

    void addTo(Commands commands) {
        commands.add("client-quotas",
            words -> begin(words.get(0), Integer.parseInt(words.get(1)), Integer.parseInt(words.get(2))));
        commands.add("limit", words -> limit(words.get(0), words.get(1), words.get(2)));
        commands.add("charge", words -> manager.maybeRecordAndGetThrottleTimeMs(session(words.get(0)), words.get(1),
            Double.parseDouble(words.get(2)), clock.milliseconds()));
        commands.add("tags", words -> tags(words.get(0), words.get(1)));
        commands.add("strict", words -> mutate(mutations().newStrictQuotaFor(session(words.get(0)), words.get(1)),
            words.subList(2, words.size())));
        commands.add("permissive", words -> mutate(
            mutations().newPermissiveQuotaFor(session(words.get(0)), words.get(1)), words.subList(2, words.size())));
    }

    private String begin(String kind, int samples, int windowS) {
        if (manager != null) {
            manager.initiateShutdown(); // its thread ends within a second; nobody waits for that
        }
        ClientQuotaManagerConfig config = new ClientQuotaManagerConfig(samples, windowS);
        Metrics metrics = KafkaOracle.metrics(clock);
        switch (kind) {
            case "produce":
                manager = new ClientQuotaManager(config, metrics, QuotaType.PRODUCE, clock, "");
                break;
            case "fetch":
                manager = new ClientQuotaManager(config, metrics, QuotaType.FETCH, clock, "");
                break;
            case "request":
                manager = new ClientRequestQuotaManager(config, metrics, clock, "", Optional.empty());
                break;
            case "mutation":
                manager = new ControllerMutationQuotaManager(config, metrics, clock, "", Optional.empty());
                break;
            default:
                throw new IllegalArgumentException(kind);
        }
        return "";
    }

    private String limit(String user, String clientId, String limit) {
        Optional<Quota> quota =
            limit.equals("none") ? Optional.empty() : Optional.of(Quota.upperBound(Double.parseDouble(limit)));
        manager.updateQuota(user(user), clientId(clientId), quota);
        return "";
    }

    private String tags(String user, String clientId) throws Exception {
        Map<String, String> tags = manager.getOrCreateQuotaSensors(session(user), clientId).metricTags();
        double limit = manager.quota(new KafkaPrincipal(KafkaPrincipal.USER_TYPE, user), clientId).bound();
        return String.join("\t", tags.get(ClientQuotaManager.USER_TAG), tags.get(ClientQuotaManager.CLIENT_ID_TAG),
            Double.toString(limit));
    }

    private ControllerMutationQuotaManager mutations() {
        return (ControllerMutationQuotaManager) manager;
    }

    private static String mutate(ControllerMutationQuota quota, List<String> permits) {
        int refused = 0;
        for (String permit : permits) {
            try {
                quota.record(Double.parseDouble(permit));
            } catch (ThrottlingQuotaExceededException exceeded) {
                refused++;
            }
        }
        return refused + "\t" + quota.throttleTime();
    }

    private static Session session(String user) throws Exception {
        return new Session(new KafkaPrincipal(KafkaPrincipal.USER_TYPE, user), InetAddress.getLoopbackAddress());
    }

    private static Optional<ClientQuotaEntity.ConfigEntity> user(String name) {
        switch (name) {
            case "-":
                return Optional.empty();
            case "<default>":
                return Optional.of(ClientQuotaManager.DEFAULT_USER_ENTITY);
            default:
                return Optional.of(new ClientQuotaManager.UserEntity(Sanitizer.sanitize(name)));
        }
    }

    private static Optional<ClientQuotaEntity.ConfigEntity> clientId(String name) {
        switch (name) {
            case "-":
                return Optional.empty();
            case "<default>":
                return Optional.of(ClientQuotaManager.DEFAULT_USER_CLIENT_ID);
            default:
                return Optional.of(new ClientQuotaManager.ClientIdEntity(name));
        }
    }
}

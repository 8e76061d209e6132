package oracles.kafka;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.util.HashMap;
import java.util.Map;
import kafka.network.ConnectionQuotas;
import kafka.server.KafkaConfig;
import oracles.Commands;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.network.ConnectionThrottledException;
import scala.Option;

/**
 * The quotas on new connections of a broker with the listeners "clients" and "brokers", the latter between brokers:
 *
 *   connections SAMPLES WINDOW_S BROKER_LIMIT LISTENER_LIMIT   begins with new quotas
 *   broker-limit LIMIT
 *   address-limit ADDRESS LIMIT                                "<default>", and "none" to remove it
 *   accept LISTENER                                            returns for how many ms the listener pauses
 *   admit LISTENER ADDRESS                                     after the pause; returns for how many ms the refused
 *                                                              connection stays open, or 0 if it is served
 *
 * Kafka calls the methods behind `accept` and `admit` one after the other in `inc`, which sleeps during the pause.
 */
final class NewConnections {
    private static final Method ACCEPT =
        method("recordConnectionAndGetThrottleTimeMs", ListenerName.class, long.class);
    private static final Method ADMIT =
        method("recordIpConnectionMaybeThrottle", ListenerName.class, InetAddress.class);

    private final Clock clock;
    private ConnectionQuotas quotas;

    NewConnections(Clock clock) {
        this.clock = clock;
    }

    void addTo(Commands commands) {
        commands.add("connections", words -> begin(words.get(0), words.get(1), words.get(2), words.get(3)));
        commands.add("broker-limit", words -> {
            quotas.updateBrokerMaxConnectionRate(Integer.parseInt(words.get(0)));
            return "";
        });
        commands.add("address-limit", words -> limitAddress(words.get(0), words.get(1)));
        commands.add("accept", words -> ACCEPT.invoke(quotas, ListenerName.normalised(words.get(0)), clock.milliseconds()));
        commands.add("admit", words -> admit(words.get(0), words.get(1)));
    }

    private String begin(String samples, String windowS, String brokerLimit, String listenerLimit) {
        Map<String, String> settings = new HashMap<>();
        settings.put("process.roles", "broker");
        settings.put("node.id", "1");
        settings.put("controller.quorum.voters", "2@localhost:9093");
        settings.put("controller.listener.names", "CONTROLLER");
        settings.put("listeners", "clients://localhost:9092,brokers://localhost:9094");
        settings.put("listener.security.protocol.map", "clients:PLAINTEXT,brokers:PLAINTEXT,CONTROLLER:PLAINTEXT");
        settings.put("inter.broker.listener.name", "brokers");
        settings.put("quota.window.num", samples);
        settings.put("quota.window.size.seconds", windowS);
        settings.put("max.connection.creation.rate", brokerLimit);
        settings.put("listener.name.clients.max.connection.creation.rate", listenerLimit);
        settings.put("listener.name.brokers.max.connection.creation.rate", listenerLimit);
        KafkaConfig config = new KafkaConfig(settings, false);
        quotas = new ConnectionQuotas(config, clock, KafkaOracle.metrics(clock));
        quotas.addListener(config, ListenerName.normalised("clients"));
        quotas.addListener(config, ListenerName.normalised("brokers"));
        return "";
    }

    private String limitAddress(String address, String limit) throws Exception {
        Option<InetAddress> named =
            address.equals("<default>") ? Option.empty() : Option.apply(InetAddress.getByName(address));
        Option<Object> rate = limit.equals("none") ? Option.empty() : Option.apply(Integer.valueOf(limit));
        quotas.updateIpConnectionRateQuota(named, rate);
        return "";
    }

    private long admit(String listener, String address) throws Exception {
        try {
            ADMIT.invoke(quotas, ListenerName.normalised(listener), InetAddress.getByName(address));
            return 0;
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof ConnectionThrottledException) {
                return ((ConnectionThrottledException) error.getCause()).throttleTimeMs;
            }
            throw error;
        }
    }

    private static Method method(String name, Class<?>... types) {
        try {
            Method method = ConnectionQuotas.class.getDeclaredMethod(name, types);
            method.setAccessible(true);
            return method;
        } catch (NoSuchMethodException error) {
            throw new IllegalStateException(error);
        }
    }
}

import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.CreatePartitionsOptions;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DeleteTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;

/**
 * Creates, extends and deletes topics, with admin clients from 2.6 to 4.x:
 *
 *   Mutations.java BOOTSTRAP CLIENT_ID STEP...
 *
 *   STEP    try:VERB or VERB: with `try:` the client does not retry when it is throttled
 *   VERB    validate:TOPIC:PARTITIONS | create:TOPIC:PARTITIONS | grow:TOPIC:PARTITIONS | delete:TOPIC
 *
 * Ends each step with one JSON object on standard output: its error and throttle time, and how long it took.
 */
public class Mutations {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(AdminClientConfig.CLIENT_ID_CONFIG, arguments[1]);
        try (Admin admin = Admin.create(settings)) {
            admin.listTopics().names().get(); // it knows where the controller is
            for (String step : Arrays.copyOfRange(arguments, 2, arguments.length)) {
                long began = System.nanoTime();
                String error = "";
                int throttledMs = 0;
                try {
                    take(admin, step).get();
                } catch (ExecutionException failure) {
                    Throwable cause = failure.getCause();
                    error = cause.getClass().getSimpleName();
                    if (error.equals("ThrottlingQuotaExceededException")) {
                        throttledMs = (int) cause.getClass().getMethod("throttleTimeMs").invoke(cause);
                    }
                }
                long tookMs = (System.nanoTime() - began) / 1_000_000;
                System.out.printf(
                    "{\"error\": \"%s\", \"throttled_ms\": %d, \"took_ms\": %d}%n", error, throttledMs, tookMs);
            }
        }
    }

    private static Future<Void> take(Admin admin, String step) throws Exception {
        boolean isPatient = !step.startsWith("try:");
        String[] parts = (isPatient ? step : step.substring(4)).split(":");
        String topic = parts[1];
        switch (parts[0]) {
            case "validate":
            case "create": {
                var options = new CreateTopicsOptions().validateOnly(parts[0].equals("validate"));
                retry(options, isPatient);
                var wanted = new NewTopic(topic, Integer.parseInt(parts[2]), (short) 1);
                return admin.createTopics(List.of(wanted), options).all();
            }
            case "grow": {
                var options = new CreatePartitionsOptions();
                retry(options, isPatient);
                var wanted = Map.of(topic, NewPartitions.increaseTo(Integer.parseInt(parts[2])));
                return admin.createPartitions(wanted, options).all();
            }
            case "delete": {
                var options = new DeleteTopicsOptions();
                retry(options, isPatient);
                return admin.deleteTopics(List.of(topic), options).all();
            }
            default:
                throw new IllegalArgumentException(step);
        }
    }

    /** Clients before 2.7 do not know that they are throttled, and have no such option. */
    private static void retry(Object options, boolean isPatient) throws Exception {
        try {
            options.getClass().getMethod("retryOnQuotaViolation", boolean.class).invoke(options, isPatient);
        } catch (NoSuchMethodException error) {
            return;
        }
    }
}

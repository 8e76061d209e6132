import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterClientQuotasOptions;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;

/**
 * Client quotas by the admin client; runs the commands at each address in turn:
 *
 *   Quotas.java BOOTSTRAP,BOOTSTRAP COMMAND...
 *
 *   alter|ENTITY|OPS...               one request; OPS: KEY=VALUE to set, KEY to remove, with "&" between
 *   validate|ENTITY|OPS...            the same without a change
 *   contains|COMPONENTS               entities with these parts, and any others
 *   only|COMPONENTS                   entities with exactly these parts
 *   clear                             removes every quota, and shows them
 *
 * ENTITY: TYPE=NAME, TYPE for the default, with "&" between; of COMPONENTS, TYPE? is any.
 * Writes for each command a sorted line per entity, and "--".
 */
public class Quotas {
    public static void main(String[] arguments) throws Exception {
        String[] commands = Arrays.copyOfRange(arguments, 1, arguments.length);
        List<List<String>> first = new ArrayList<>();
        for (String bootstrap : arguments[0].split(",")) {
            try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
                for (int at = 0; at < commands.length; at++) {
                    List<String> expected = first.size() < commands.length ? null : first.get(at);
                    List<String> lines = run(admin, commands[at].split("\\|", -1), expected);
                    if (expected == null) {
                        first.add(lines);
                    }
                    lines.forEach(System.out::println);
                    System.out.println("--");
                }
            }
        }
    }

    private static List<String> run(Admin admin, String[] words, List<String> expected) throws Exception {
        switch (words[0]) {
            case "clear":
                List<ClientQuotaAlteration> removals = new ArrayList<>();
                List<String> present = described(admin, ClientQuotaFilter.all(), expected);
                for (String line : present) {
                    String[] parts = line.split(" \\{");
                    String keys = Arrays.stream(parts[1].replace("}", "").split(", "))
                        .map(part -> part.substring(0, part.indexOf('='))).collect(Collectors.joining("&"));
                    removals.add(new ClientQuotaAlteration(entity(parts[0]), ops(keys)));
                }
                alter(admin, removals, false);
                return present;
            case "alter":
            case "validate":
                List<ClientQuotaAlteration> alterations = new ArrayList<>();
                for (int at = 1; at < words.length; at += 2) {
                    alterations.add(new ClientQuotaAlteration(entity(words[at]), ops(words[at + 1])));
                }
                return alter(admin, alterations, words[0].equals("validate"));
            default:
                List<ClientQuotaFilterComponent> components = new ArrayList<>();
                for (String part : parts(words[1])) {
                    int at = part.indexOf('=');
                    components.add(at >= 0
                        ? ClientQuotaFilterComponent.ofEntity(part.substring(0, at), part.substring(at + 1))
                        : part.endsWith("?")
                            ? ClientQuotaFilterComponent.ofEntityType(part.substring(0, part.length() - 1))
                            : ClientQuotaFilterComponent.ofDefaultEntity(part));
                }
                return described(admin, words[0].equals("only")
                    ? ClientQuotaFilter.containsOnly(components) : ClientQuotaFilter.contains(components), expected);
        }
    }

    /** What there is; a broker hears of a change some time after it is answered, so it is asked until it says as much. */
    private static List<String> described(Admin admin, ClientQuotaFilter filter, List<String> expected) throws Exception {
        List<String> lines;
        long end = System.nanoTime() + 5_000_000_000L;
        do {
            try {
                lines = admin.describeClientQuotas(filter).entities().get().entrySet().stream()
                    .map(entry -> text(entry.getKey()) + " " + new TreeMap<>(entry.getValue()))
                    .sorted().collect(Collectors.toList());
            } catch (ExecutionException failure) {
                return List.of(text(failure));
            }
        } while (expected != null && !lines.equals(expected) && System.nanoTime() < end);
        return lines;
    }

    private static List<String> alter(Admin admin, Collection<ClientQuotaAlteration> all, boolean onlyValidates)
            throws InterruptedException {
        List<String> lines = new ArrayList<>();
        AlterClientQuotasOptions options = new AlterClientQuotasOptions().validateOnly(onlyValidates);
        for (Map.Entry<ClientQuotaEntity, KafkaFuture<Void>> result
                : admin.alterClientQuotas(all, options).values().entrySet()) {
            String outcome = "done";
            try {
                result.getValue().get();
            } catch (ExecutionException failure) {
                outcome = text(failure);
            }
            lines.add(text(result.getKey()) + " " + outcome);
        }
        lines.sort(null);
        return lines;
    }

    private static ClientQuotaEntity entity(String text) {
        Map<String, String> names = new TreeMap<>();
        for (String part : parts(text)) {
            int at = part.indexOf('=');
            names.put(at < 0 ? part : part.substring(0, at), at < 0 ? null : part.substring(at + 1));
        }
        return new ClientQuotaEntity(names);
    }

    private static List<ClientQuotaAlteration.Op> ops(String text) {
        return parts(text).stream().map(part -> {
            int at = part.indexOf('=');
            return new ClientQuotaAlteration.Op(
                at < 0 ? part : part.substring(0, at), at < 0 ? null : Double.valueOf(part.substring(at + 1)));
        }).collect(Collectors.toList());
    }

    private static List<String> parts(String text) {
        return text.isEmpty() ? List.of() : Arrays.asList(text.split("&", -1));
    }

    private static String text(ClientQuotaEntity entity) {
        return new TreeMap<>(entity.entries()).entrySet().stream()
            .map(entry -> entry.getValue() == null ? entry.getKey() : entry.getKey() + "=" + entry.getValue())
            .collect(Collectors.joining("&"));
    }

    private static String text(ExecutionException failure) {
        return failure.getCause().getClass().getSimpleName() + ": " + failure.getCause().getMessage();
    }
}

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;

/**
 * Several runs of kafka-configs.sh in one process, because each takes a second to start:
 *
 *   Configs.java BOOTSTRAP EXPECTED COMMAND...       the words of a command are separated by "|"; one with
 *                                                    --bootstrap-server goes to that address
 *
 * A broker describes a change some milliseconds after its acknowledgement. So commands that only show are repeated until
 * their output is as expected, for two seconds at most. EXPECTED is "-", or a file with the lines of each
 * command, sorted like their limits, and U+001E between commands.
 *
 * Writes for each command a line with its exit status, its standard output and error, and an empty line.
 */
public class Configs {
    public static void main(String[] arguments) throws Exception {
        String[] expected = arguments[1].equals("-") ? null : Files.readString(Path.of(arguments[1])).split("\u001e", -1);
        PrintStream out = System.out;
        // One for all of them: Scala's println, of Kafka before 4, keeps the stream that it finds first.
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        System.setOut(new PrintStream(said, true));
        System.setErr(System.out);
        insteadOfExiting();
        Method main = either("org.apache.kafka.tools.ConfigCommand", "kafka.admin.ConfigCommand")
            .getMethod("main", String[].class);
        for (int i = 2; i < arguments.length; i++) {
            List<String> words = new ArrayList<>(Arrays.asList(arguments[i].split("\\|")));
            if (!words.contains("--bootstrap-server")) {
                words.addAll(List.of("--bootstrap-server", arguments[0]));
            }
            boolean isShown = expected != null && arguments[i].startsWith("--describe");
            long until = System.nanoTime() + 2_000_000_000L;
            int status;
            do {
                said.reset();
                status = run(main, words);
            } while (isShown && !lines(said).equals(expected[i - 2]) && System.nanoTime() < until);
            out.printf("%d%n%s%n", status, said);
        }
    }

    private static int run(Method main, List<String> words) throws Exception {
        try {
            main.invoke(null, (Object) words.toArray(new String[0]));
            return 0;
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof Exited exited) {
                return exited.status;
            }
            throw error;
        }
    }

    /** Makes Kafka's Exit throw Exited. */
    private static void insteadOfExiting() throws Exception {
        String utilities = "org.apache.kafka.common.utils.";
        Class<?> exit = either(utilities + "internals.Exit", utilities + "Exit");
        Class<?> procedure = Class.forName(exit.getName() + "$Procedure");
        Object throwing = Proxy.newProxyInstance(Configs.class.getClassLoader(), new Class<?>[] {procedure},
            (proxy, method, values) -> {
                throw new Exited((int) values[0]);
            });
        exit.getMethod("setExitProcedure", procedure).invoke(null, throwing);
    }

    /** Returns a class that Kafka 4.4 moved, by its name there or by its older name. */
    private static Class<?> either(String name, String older) throws ClassNotFoundException {
        try {
            return Class.forName(name);
        } catch (ClassNotFoundException error) {
            return Class.forName(older);
        }
    }

    private static String lines(ByteArrayOutputStream said) {
        return said.toString().lines().filter(line -> !line.isEmpty()).map(Configs::sorted).sorted()
                .collect(Collectors.joining("\n"));
    }

    private static String sorted(String line) {
        int at = line.lastIndexOf(" are ") + 5;
        if (!line.startsWith("Quota configs for ") || at < 5) {
            return line;
        }
        return line.substring(0, at) + Arrays.stream(line.substring(at).split(", ")).sorted().collect(Collectors.joining(", "));
    }

    private static class Exited extends RuntimeException {
        private final int status;

        private Exited(int status) {
            this.status = status;
        }
    }
}

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;
import kafka.admin.ConfigCommand;
import org.apache.kafka.common.utils.Exit;

/**
 * Several runs of kafka-configs.sh in one process, because each takes a second to start:
 *
 *   Configs.java BOOTSTRAP EXPECTED COMMAND...       the words of a command are separated by "|"; one with
 *                                                    --bootstrap-server goes to that address
 *
 * A broker describes a change some milliseconds after its acknowledgement. So commands that only show are repeated until
 * their output is as expected, for two seconds at most. EXPECTED is "-", or a file with the sorted lines of each
 * command, and U+001E between commands.
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
        Exit.setExitProcedure((status, message) -> {
            throw new Exited(status);
        });
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
                status = run(words);
            } while (isShown && !lines(said).equals(expected[i - 2]) && System.nanoTime() < until);
            out.printf("%d%n%s%n", status, said);
        }
    }

    private static int run(List<String> words) {
        try {
            ConfigCommand.main(words.toArray(new String[0]));
            return 0;
        } catch (Exited exited) {
            return exited.status;
        }
    }

    private static String lines(ByteArrayOutputStream said) {
        return said.toString().lines().filter(line -> !line.isEmpty()).sorted().collect(Collectors.joining("\n"));
    }

    private static class Exited extends RuntimeException {
        private final int status;

        private Exited(int status) {
            this.status = status;
        }
    }
}

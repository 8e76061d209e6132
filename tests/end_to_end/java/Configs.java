import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import kafka.admin.ConfigCommand;
import org.apache.kafka.common.utils.Exit;

/**
 * Several kafka-configs.sh in one process, for each takes a second to start:
 *
 *   Configs.java BOOTSTRAP COMMAND...       the words of a command are separated by "|"
 *
 * Writes of each command a line with its exit status, all that it wrote to standard output and error, and an empty line.
 */
public class Configs {
    public static void main(String[] arguments) {
        PrintStream out = System.out;
        PrintStream errors = System.err;
        Exit.setExitProcedure((status, message) -> {
            throw new Exited(status);
        });
        for (String command : Arrays.copyOfRange(arguments, 1, arguments.length)) {
            List<String> words = new ArrayList<>(List.of("--bootstrap-server", arguments[0]));
            words.addAll(Arrays.asList(command.split("\\|")));
            ByteArrayOutputStream said = new ByteArrayOutputStream();
            int status = 0;
            System.setOut(new PrintStream(said, true));
            System.setErr(System.out);
            try {
                ConfigCommand.main(words.toArray(new String[0]));
            } catch (Exited exited) {
                status = exited.status;
            } finally {
                System.setOut(out);
                System.setErr(errors);
            }
            out.printf("%d%n%s%n", status, said);
        }
    }

    private static class Exited extends RuntimeException {
        private final int status;

        private Exited(int status) {
            this.status = status;
        }
    }
}

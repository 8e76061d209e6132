package oracles;

import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Reads one command from each line of standard input, and answers it with one line on standard output.
 *
 * The words of a line are separated by tabs. An answer is "=" and a value, or "!" and an error.
 */
public final class Commands {
    /** What a command does with the words that follow its name. The result is printed. */
    public interface Command {
        Object run(List<String> words) throws Exception;
    }

    private final Map<String, Command> commands = new HashMap<>();

    public void add(String name, Command command) {
        commands.put(name, command);
    }

    /** Answers all lines until the end of standard input. Libraries may print to {@code System.out} meanwhile. */
    public void serve() throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(answer(line));
        }
    }

    private String answer(String line) {
        List<String> words = Arrays.asList(line.split("\t", -1));
        try {
            Command command = commands.get(words.get(0));
            if (command == null) {
                throw new IllegalArgumentException("no such command: " + line);
            }
            return "=" + command.run(words.subList(1, words.size()));
        } catch (Exception error) {
            error.printStackTrace();
            return "!" + error.toString().replace('\n', ' ');
        }
    }
}

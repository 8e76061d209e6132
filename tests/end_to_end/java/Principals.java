import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Base64;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Names as mapped by Java and Kafka, one question per line of a file, one answer per line of standard output.
 * B64 is base64, of UTF-8 or bytes.
 *
 *   certificate B64(DER)          -> ok B64(name of its subject)  | refused
 *   subject B64(DER)              -> ok B64(name)                 | refused
 *   map B64(rules) B64(name)      -> ok B64(user) | invalid B64(why) | nomatch | fails B64(why)
 */
public class Principals {
    public static void main(String[] args) throws Exception {
        BufferedReader in = Files.newBufferedReader(Path.of(args[0]), StandardCharsets.US_ASCII);
        StringBuilder out = new StringBuilder("java " + System.getProperty("java.version") + "\n");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.append(answer(line.split(" ", -1))).append('\n');
        }
        System.out.print(out);
    }

    private static String answer(String[] words) throws Exception {
        switch (words[0]) {
            case "certificate":
                try {
                    X509Certificate certificate = (X509Certificate) CertificateFactory.getInstance("X.509")
                        .generateCertificate(new ByteArrayInputStream(bytes(words[1])));
                    return ok(certificate.getSubjectX500Principal().getName());
                } catch (Exception error) {
                    return "refused";
                }
            case "subject":
                try {
                    return ok(new X500Principal(bytes(words[1])).getName());
                } catch (Exception error) {
                    return "refused";
                }
            case "map":
                return map(text(words[1]), text(words[2]));
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private static String map(String rules, String name) {
        SslPrincipalMapper mapper;
        try {
            mapper = SslPrincipalMapper.fromRules(rules);
        } catch (RuntimeException error) {
            return "invalid " + base64(String.valueOf(error.getMessage()));
        }
        try {
            return ok(mapper.getName(name));
        } catch (java.io.IOException error) {
            return "nomatch";
        } catch (RuntimeException | StackOverflowError error) {
            return "fails " + base64(String.valueOf(error.getMessage()));
        }
    }

    private static String ok(String text) {
        return "ok " + base64(text);
    }

    private static byte[] bytes(String word) {
        return Base64.getDecoder().decode(word);
    }

    private static String text(String word) {
        return new String(bytes(word), StandardCharsets.UTF_8);
    }

    private static String base64(String text) {
        return Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}

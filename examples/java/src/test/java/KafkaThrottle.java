import java.net.URI;
import java.net.http.*;
import java.util.*;
import org.junit.jupiter.api.extension.*;

/** Orders throttled responses from kafka-quota-proxy. Each test begins without orders. */
class KafkaThrottle implements BeforeEachCallback {
    final String bootstrapServers = System.getenv().getOrDefault("KAFKA_BOOTSTRAP_SERVERS", "localhost:9092");
    private final String admin = System.getenv().getOrDefault("KAFKA_QUOTA_PROXY_ADMIN", "localhost:9308");

    void next(int count, String api, int throttleTimeMs, String clientId) throws Exception {
        call("POST", "throttles", """
            {"count": %d, "api": "%s", "throttle_time_ms": %d, "client_id": "%s"}
            """.formatted(count, api, throttleTimeMs, clientId));
    }

    List<Integer> observedMs(String clientId) throws Exception {
        var observed = new Scanner(call("GET", "observed?client_id=" + clientId, ""));
        return observed.findAll("(?<=\"throttle_time_ms\": ?)\\d+").map(time -> Integer.valueOf(time.group())).toList();
    }

    @Override
    public void beforeEach(ExtensionContext context) throws Exception {
        call("POST", "reset", "");
    }

    private String call(String method, String path, String body) throws Exception {
        var url = URI.create("http://" + admin + "/testing/" + path);
        var request = HttpRequest.newBuilder(url).header("Content-Type", "application/json")
            .method(method, HttpRequest.BodyPublishers.ofString(body)).build();
        var response = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        if (response.statusCode() != 200) throw new IllegalStateException(response.body());
        return response.body();
    }
}

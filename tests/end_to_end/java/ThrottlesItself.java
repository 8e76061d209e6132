import java.lang.reflect.Field;
import java.util.Arrays;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.AbstractResponse;
import sun.misc.Unsafe;

/**
 * Lists the responses whose throttle time this release's clients wait out:
 *
 *   ThrottlesItself.java
 *
 * Prints a line "API_KEY VERSION true|false" for each version that the client knows.
 */
public class ThrottlesItself {
    public static void main(String[] arguments) throws Exception {
        Field field = Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        var unsafe = (Unsafe) field.get(null);
        Field api = AbstractResponse.class.getDeclaredField("apiKey");
        api.setAccessible(true);
        for (ApiKeys key : ApiKeys.values()) {
            if (key.oldestVersion() > key.latestVersion()) { // Kafka 4 removed the API
                continue;
            }
            // Each has a constructor of its own; what is asked for needs only the API of what these set.
            var response = (AbstractResponse) unsafe.allocateInstance(classOf(key));
            api.set(response, key);
            for (int version = key.oldestVersion(); version <= key.latestVersion(); version++) {
                System.out.println(key.id + " " + version + " " + response.shouldClientThrottle((short) version));
            }
        }
    }

    private static Class<?> classOf(ApiKeys key) throws ClassNotFoundException {
        String name = key == ApiKeys.OFFSET_FOR_LEADER_EPOCH ? "OffsetsForLeaderEpoch" : key.name;
        return Class.forName(AbstractResponse.class.getPackageName() + "." + name + "Response");
    }
}

import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import org.apache.kafka.common.Endpoint;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.server.authorizer.AclCreateResult;
import org.apache.kafka.server.authorizer.AclDeleteResult;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.authorizer.AuthorizerServerInfo;

/**
 * Allows everything, and makes the broker's thread sleep for "slow.writes.ms" at each write to a topic. Such a broker is busy
 * as with a slow disk, but uses no processor time.
 */
public class SlowWrites implements Authorizer {
    private long sleepMs;

    @Override
    public void configure(Map<String, ?> settings) {
        sleepMs = Long.parseLong(String.valueOf(settings.get("slow.writes.ms")));
    }

    @Override
    public Map<Endpoint, ? extends CompletionStage<Void>> start(AuthorizerServerInfo server) {
        Map<Endpoint, CompletionStage<Void>> started = new java.util.HashMap<>();
        server.endpoints().forEach(endpoint -> started.put(endpoint, CompletableFuture.completedFuture(null)));
        return started;
    }

    @Override
    public List<AuthorizationResult> authorize(AuthorizableRequestContext context, List<Action> actions) {
        for (Action action : actions) {
            boolean isTopic = action.resourcePattern().resourceType() == ResourceType.TOPIC;
            if (isTopic && action.operation() == AclOperation.WRITE) {
                try {
                    Thread.sleep(sleepMs);
                } catch (InterruptedException error) {
                    Thread.currentThread().interrupt();
                }
            }
        }
        return Collections.nCopies(actions.size(), AuthorizationResult.ALLOWED);
    }

    @Override
    public List<? extends CompletionStage<AclCreateResult>> createAcls(
            AuthorizableRequestContext context, List<AclBinding> bindings) {
        throw new UnsupportedOperationException();
    }

    @Override
    public List<? extends CompletionStage<AclDeleteResult>> deleteAcls(
            AuthorizableRequestContext context, List<AclBindingFilter> filters) {
        throw new UnsupportedOperationException();
    }

    @Override
    public Iterable<AclBinding> acls(AclBindingFilter filter) {
        return List.of();
    }

    @Override
    public void close() {}
}

import java.net.InetAddress;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/** Kafka's StandardAuthorizer. A line on stdin is a word and its arguments, separated by tabs:
 *
 *      clear ALLOW_IF_NO_RULE                                                       forgets all rules
 *      rule TYPE NAME PATTERN PRINCIPAL HOST OPERATION PERMISSION
 *      ask PRINCIPAL HOST OPERATION TYPE NAME                                       answered with 1 or 0
 *      any PRINCIPAL HOST OPERATION TYPE                                            answered with 1 or 0
 */
public class Authorizer {
    record Context(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return "test"; }
        public int correlationId() { return 0; }
    }

    public static void main(String[] args) throws Exception {
        StandardAuthorizer authorizer = null;
        Map<Uuid, StandardAcl> rules = new HashMap<>();
        boolean loaded = false;
        Scanner lines = new Scanner(System.in, "UTF-8").useDelimiter("\n");
        while (lines.hasNext()) {
            String[] word = lines.next().split("\t", -1);
            if (word[0].equals("clear")) {
                authorizer = new StandardAuthorizer();
                authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
                authorizer.configure(Map.of("super.users", "User:root", "allow.everyone.if.no.acl.found", word[1]));
                rules.clear();
                loaded = false;
            } else if (word[0].equals("rule")) {
                rules.put(Uuid.randomUuid(), new StandardAcl(ResourceType.fromCode(Byte.parseByte(word[1])), word[2],
                    PatternType.fromCode(Byte.parseByte(word[3])), word[4], word[5],
                    AclOperation.fromCode(Byte.parseByte(word[6])), AclPermissionType.fromCode(Byte.parseByte(word[7]))));
            } else {
                if (!loaded) {
                    authorizer.loadSnapshot(rules);
                    authorizer.completeInitialLoad();
                    loaded = true;
                }
                Context context = new Context(SecurityUtils.parseKafkaPrincipal(word[1]), InetAddress.getByName(word[2]));
                AclOperation operation = AclOperation.fromCode(Byte.parseByte(word[3]));
                ResourceType type = ResourceType.fromCode(Byte.parseByte(word[4]));
                AuthorizationResult result = word[0].equals("any")
                    ? authorizer.authorizeByResourceType(context, operation, type)
                    : authorizer.authorize(context, List.of(new Action(operation,
                        new ResourcePattern(type, word[5], PatternType.LITERAL), 1, true, true))).get(0);
                System.out.println(result == AuthorizationResult.ALLOWED ? 1 : 0);
                System.out.flush();
            }
        }
    }
}

import java.lang.reflect.Method;
import java.net.InetAddress;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Scanner;
import java.util.Set;
import kafka.security.authorizer.AclAuthorizer;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.security.authorizer.AclEntry;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import scala.jdk.javaapi.CollectionConverters;

/** AclAuthorizer of Kafka 3.9, whose rules are put into its cache, as it puts those of ZooKeeper there. The lines are
 *  those of Authorizer.java. */
public class AclAuthorizerOf39 {
    record Context(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return "test"; }
        public int correlationId() { return 0; }
    }

    static void set(AclAuthorizer authorizer, String name, Class<?> type, Object value) throws Exception {
        Method setter = AclAuthorizer.class.getDeclaredMethod(name + "_$eq", type);
        setter.setAccessible(true);
        setter.invoke(authorizer, value);
    }

    static <T> scala.collection.immutable.Set<T> immutable(Set<T> values) {
        return CollectionConverters.asScala(values).toSet();
    }

    public static void main(String[] args) throws Exception {
        AclAuthorizer authorizer = null;
        Map<ResourcePattern, Set<AclEntry>> rules = new HashMap<>();
        Scanner lines = new Scanner(System.in, "UTF-8").useDelimiter("\n");
        while (lines.hasNext()) {
            String[] word = lines.next().split("\t", -1);
            if (word[0].equals("clear")) {
                authorizer = new AclAuthorizer();
                set(authorizer, "superUsers", scala.collection.immutable.Set.class,
                    immutable(Set.of(SecurityUtils.parseKafkaPrincipal("User:root"))));
                set(authorizer, "shouldAllowEveryoneIfNoAclIsFound", boolean.class, Boolean.parseBoolean(word[1]));
                rules.clear();
            } else if (word[0].equals("rule")) {
                ResourcePattern pattern = new ResourcePattern(ResourceType.fromCode(Byte.parseByte(word[1])), word[2],
                    PatternType.fromCode(Byte.parseByte(word[3])));
                Set<AclEntry> entries = rules.computeIfAbsent(pattern, key -> new HashSet<>());
                entries.add(new AclEntry(new AccessControlEntry(word[4], word[5],
                    AclOperation.fromCode(Byte.parseByte(word[6])), AclPermissionType.fromCode(Byte.parseByte(word[7])))));
                authorizer.updateCache(pattern, new AclAuthorizer.VersionedAcls(immutable(entries), entries.size()));
            } else {
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
